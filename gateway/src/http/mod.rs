//! Bytes to HTTP/1.1 requests and replies to bytes, as RFC 9110 and RFC 9112 have it.
//!
//! Nothing here performs I/O, reads a clock or knows a route. What two servers could read differently is refused, never
//! repaired: that is what request smuggling needs. Invariant: the outcome for a stream of bytes does not depend on how
//! it was cut into pieces.

pub mod body;
pub mod cache_control;
pub mod head;
pub mod request_id;
pub mod sse;
pub mod write;

pub use body::{BodyReader, Fed};
pub use cache_control::CacheControl;
pub use head::{Field, Framing, Head, HeadReader, Method, Parsed, Version};
pub use request_id::{IdSource, RequestId};
pub use sse::Chunk;
pub use write::{Prepared, PreparedFields, ReplyHead, StreamFraming};
