//! `/v1/completions`: from a request to the jobs for all its prompts.
//!
//! Invariant: answer `i` of the reply belongs to prompt `i / n`, and each prompt is answered as it would be alone.

use std::sync::Arc;

use zerohop_engine::{Echo, Form, Generate, JobKind};
use zerohop_ring::ConnId;

use super::{Admitted, Outcome, Request};
use crate::{
    api::{self, ChatRequest, Dialect, openai::CompletionRequest},
    reply::{CompletionReply, ReplyMeta},
    worker::{
        answering::{Told, generate, kinds},
        local::Local,
    },
};

impl Request {
    /// Prompts to be continued.
    pub(super) fn completions(
        mut self,
        by: &Admitted,
        body: &[u8],
        conn: ConnId,
        out: &mut Vec<u8>,
        local: &mut Local,
    ) -> Outcome {
        // Its replies have one shape, whatever headers come with the request.
        self.dialect = Dialect::OpenAi;
        let read = self.read(by, local, |scratch, strict| {
            api::openai::completions(body, scratch, strict)
        });
        let (request, index, _) = match read {
            Ok(read) => read,
            Err(error) => return self.refuse(&error, out, local),
        };
        let model = Arc::clone(by.snapshot.model(index));
        let choices = request.choices();
        if let Some(generation) = &mut self.record.generation {
            generation.answers_each = choices as usize;
        }
        if request.extras.as_ref().is_some_and(|extras| extras.form != Form::Free) {
            model.metrics[local.worker()].structured_requests.increment();
        }
        let plain = self.plain_meta(&request.model, &model, local);
        let meta = ReplyMeta {
            stream: request.stream,
            choices: request.prompts.len() as u32 * choices,
            logprobs: request.extras.as_ref().is_some_and(|extras| extras.logprobs.is_some()),
            places: request
                .extras
                .as_ref()
                .map(|extras| extras.places.clone())
                .unwrap_or_default(),
            ..plain
        };
        let told = Told::Completion(CompletionReply::new(meta, choices));
        self.submit(jobs(request, local), conn, told, &model, out, local)
    }
}

/// The jobs of all answers, prompt by prompt.
fn jobs(request: CompletionRequest, local: &mut Local) -> Vec<JobKind> {
    let choices = request.choices();
    let echo = if request.echo { Echo::Prompt } else { Echo::None };
    // Everything but its prompt is asked for as in a chat.
    let chat = ChatRequest {
        dialect: Dialect::OpenAi,
        model: request.model,
        conversation: Vec::new().into(),
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        seed: request.seed,
        max_tokens: Some(request.max_tokens),
        stop: request.stop,
        stream: request.stream,
        extras: request.extras,
    };
    let common = Generate {
        echo,
        ..generate(chat, local)
    };
    let prompts = request.prompts.into_iter();
    prompts
        .flat_map(|prompt| {
            let one = Generate {
                prompt,
                ..common.clone()
            };
            kinds(JobKind::Generate(Box::new(one)), choices)
        })
        .collect()
}
