//! The names of the Messages API.
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
    MaxTokens,
    System,
    Stream,
    StopSequences,
    Temperature,
    TopP,
    TopK,
    Thinking,
    OutputConfig,
    Tools,
    ToolChoice,
    OutputFormat,
    McpServers,
    Thread,
    Fallbacks,
    Compaction,
    BillingPolicy,
    Metadata,
    ServiceTier,
    CacheControl,
    ContextManagement,
    Container,
    Diagnostics,
    InferenceGeo,
    Speed,
}

/// Hints to the vendor's own service.
macro_rules! hint {
    () => {
        Name::Metadata
            | Name::ServiceTier
            | Name::CacheControl
            | Name::ContextManagement
            | Name::Container
            | Name::Diagnostics
            | Name::InferenceGeo
            | Name::Speed
    };
}

pub(in crate::api) static TOP: Names<Name, 27> = Names::new([
    ("model", Name::Model),
    ("messages", Name::Messages),
    ("max_tokens", Name::MaxTokens),
    ("system", Name::System),
    ("stream", Name::Stream),
    ("stop_sequences", Name::StopSequences),
    ("temperature", Name::Temperature),
    ("top_p", Name::TopP),
    ("top_k", Name::TopK),
    ("thinking", Name::Thinking),
    ("output_config", Name::OutputConfig),
    ("tools", Name::Tools),
    ("tool_choice", Name::ToolChoice),
    ("output_format", Name::OutputFormat),
    ("mcp_servers", Name::McpServers),
    ("thread", Name::Thread),
    ("fallbacks", Name::Fallbacks),
    ("compaction", Name::Compaction),
    ("billing_policy", Name::BillingPolicy),
    ("metadata", Name::Metadata),
    ("service_tier", Name::ServiceTier),
    ("cache_control", Name::CacheControl),
    ("context_management", Name::ContextManagement),
    ("container", Name::Container),
    ("diagnostics", Name::Diagnostics),
    ("inference_geo", Name::InferenceGeo),
    ("speed", Name::Speed),
]);

pub(super) static ROLES: Names<Role, 3> = Names::new([
    ("user", Role::User),
    ("assistant", Role::Assistant),
    ("system", Role::System),
]);

/// What becomes of a content block.
#[derive(Debug, Clone, Copy)]
pub(super) enum Block {
    Text,
    /// The model's earlier thoughts, which no template of ours shows it again.
    Thinking,
    /// A call of a tool in an earlier answer.
    ToolUse,
    /// What came of one.
    ToolResult,
    NotYet,
}

pub(super) static BLOCKS: Names<Block, 23> = Names::new([
    ("text", Block::Text),
    ("thinking", Block::Thinking),
    ("redacted_thinking", Block::Thinking),
    ("image", Block::NotYet),
    ("document", Block::NotYet),
    ("search_result", Block::NotYet),
    ("tool_use", Block::ToolUse),
    ("tool_result", Block::ToolResult),
    ("tool_reference", Block::NotYet),
    ("tool_addition", Block::NotYet),
    ("tool_removal", Block::NotYet),
    ("server_tool_use", Block::NotYet),
    ("web_search_tool_result", Block::NotYet),
    ("web_fetch_tool_result", Block::NotYet),
    ("code_execution_tool_result", Block::NotYet),
    ("bash_code_execution_tool_result", Block::NotYet),
    ("text_editor_code_execution_tool_result", Block::NotYet),
    ("tool_search_tool_result", Block::NotYet),
    ("mcp_tool_use", Block::NotYet),
    ("mcp_tool_result", Block::NotYet),
    ("container_upload", Block::NotYet),
    ("compaction", Block::NotYet),
    ("fallback", Block::NotYet),
]);

pub(super) use hint;
