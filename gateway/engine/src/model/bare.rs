//! A chat template over a tokenizer alone, without a model: to try templates and what clients write.
//!
//! Runs nothing. Invariant: the prompts are those that an engine with this tokenizer and this template would make.

use super::{prompt::Prompts, template::Template, template::TokenNames, vocabulary::Vocabulary};
use crate::job::Conversation;

/// Prompts of one template and one tokenizer.
pub struct Chat {
    prompts: Prompts,
}

impl Chat {
    /// Of a tokenizer.json and the source of a template.
    ///
    /// # Errors
    /// What is wrong with one of them, in a line.
    pub fn new(tokenizer: &[u8], template: &str) -> Result<Self, String> {
        let template = Template::compile(template, TokenNames::default())?;
        Ok(Self {
            prompts: Prompts::new(template, Vocabulary::parse(tokenizer)?)?,
        })
    }

    /// The ids of a conversation, up to where a model writes.
    ///
    /// # Errors
    /// Why it is refused, in a line.
    pub fn ids(&self, conversation: &Conversation) -> Result<Vec<u32>, String> {
        let encoded = self.prompts.encode(conversation).map_err(|(_, reason)| reason);
        encoded.map(|prompt| prompt.ids)
    }

    /// The bytes that a token stands for.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.prompts.vocabulary().text().get(id)
    }
}
