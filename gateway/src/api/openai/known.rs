//! The names of the Chat Completions API, and of what open servers share beyond it.
//!
//! Nothing here reads a body. Invariant: a name that is not here is unknown.

use zerohop_engine::Role;

use crate::api::names::Names;

/// The names that a body may have at its top. What is not here is unknown.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(in crate::api) enum Name {
    Model,
    Messages,
    Stream,
    StreamOptions,
    MaxCompletionTokens,
    MaxTokens,
    Temperature,
    TopP,
    TopK,
    Stop,
    Seed,
    N,
    Logprobs,
    TopLogprobs,
    LogitBias,
    FrequencyPenalty,
    PresencePenalty,
    ResponseFormat,
    Tools,
    ToolChoice,
    Functions,
    FunctionCall,
    Audio,
    Modalities,
    WebSearchOptions,
    Moderation,
    MinP,
    RepetitionPenalty,
    MinTokens,
    IgnoreEos,
    StopTokenIds,
    ChatTemplateKwargs,
    StructuredOutputs,
    GuidedJson,
    GuidedRegex,
    GuidedChoice,
    GuidedGrammar,
    Grammar,
    JsonSchema,
    Echo,
    PromptLogprobs,
    ParallelToolCalls,
    ReasoningEffort,
    User,
    SafetyIdentifier,
    Metadata,
    Store,
    PromptCacheKey,
    PromptCacheOptions,
    PromptCacheRetention,
    ServiceTier,
    Verbosity,
    Prediction,
    AddGenerationPrompt,
    ContinueFinalMessage,
}

/// Hints to the vendor's own service, and what always holds here.
macro_rules! hint {
    () => {
        Name::ReasoningEffort
            | Name::User
            | Name::SafetyIdentifier
            | Name::Metadata
            | Name::Store
            | Name::PromptCacheKey
            | Name::PromptCacheOptions
            | Name::PromptCacheRetention
            | Name::ServiceTier
            | Name::Verbosity
            | Name::Prediction
            | Name::AddGenerationPrompt
            | Name::ContinueFinalMessage
    };
}

pub(in crate::api) static TOP: Names<Name, 55> = Names::new([
    ("model", Name::Model),
    ("messages", Name::Messages),
    ("stream", Name::Stream),
    ("stream_options", Name::StreamOptions),
    ("max_completion_tokens", Name::MaxCompletionTokens),
    ("max_tokens", Name::MaxTokens),
    ("temperature", Name::Temperature),
    ("top_p", Name::TopP),
    ("top_k", Name::TopK),
    ("stop", Name::Stop),
    ("seed", Name::Seed),
    ("n", Name::N),
    ("logprobs", Name::Logprobs),
    ("top_logprobs", Name::TopLogprobs),
    ("logit_bias", Name::LogitBias),
    ("frequency_penalty", Name::FrequencyPenalty),
    ("presence_penalty", Name::PresencePenalty),
    ("response_format", Name::ResponseFormat),
    ("tools", Name::Tools),
    ("tool_choice", Name::ToolChoice),
    ("functions", Name::Functions),
    ("function_call", Name::FunctionCall),
    ("audio", Name::Audio),
    ("modalities", Name::Modalities),
    ("web_search_options", Name::WebSearchOptions),
    ("moderation", Name::Moderation),
    ("min_p", Name::MinP),
    ("repetition_penalty", Name::RepetitionPenalty),
    ("min_tokens", Name::MinTokens),
    ("ignore_eos", Name::IgnoreEos),
    ("stop_token_ids", Name::StopTokenIds),
    ("chat_template_kwargs", Name::ChatTemplateKwargs),
    ("structured_outputs", Name::StructuredOutputs),
    ("guided_json", Name::GuidedJson),
    ("guided_regex", Name::GuidedRegex),
    ("guided_choice", Name::GuidedChoice),
    ("guided_grammar", Name::GuidedGrammar),
    ("grammar", Name::Grammar),
    ("json_schema", Name::JsonSchema),
    ("echo", Name::Echo),
    ("prompt_logprobs", Name::PromptLogprobs),
    ("parallel_tool_calls", Name::ParallelToolCalls),
    ("reasoning_effort", Name::ReasoningEffort),
    ("user", Name::User),
    ("safety_identifier", Name::SafetyIdentifier),
    ("metadata", Name::Metadata),
    ("store", Name::Store),
    ("prompt_cache_key", Name::PromptCacheKey),
    ("prompt_cache_options", Name::PromptCacheOptions),
    ("prompt_cache_retention", Name::PromptCacheRetention),
    ("service_tier", Name::ServiceTier),
    ("verbosity", Name::Verbosity),
    ("prediction", Name::Prediction),
    ("add_generation_prompt", Name::AddGenerationPrompt),
    ("continue_final_message", Name::ContinueFinalMessage),
]);

/// Whose message it is; `None` for a function's result in the old words, which only the walk over the tape reads.
pub(super) static ROLES: Names<Option<Role>, 6> = Names::new([
    ("system", Some(Role::System)),
    ("developer", Some(Role::System)),
    ("user", Some(Role::User)),
    ("assistant", Some(Role::Assistant)),
    ("tool", Some(Role::Tool)),
    ("function", None),
]);

/// What becomes of a content part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Text,
    /// What an earlier answer said instead of an answer.
    Refusal,
    NotYet,
}

pub(super) static PARTS: Names<Part, 6> = Names::new([
    ("text", Part::Text),
    ("refusal", Part::Refusal),
    ("image_url", Part::NotYet),
    ("input_audio", Part::NotYet),
    ("video_url", Part::NotYet),
    ("file", Part::NotYet),
]);

pub(super) use hint;
