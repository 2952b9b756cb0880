//! `/v1/embeddings`: from a request to the job that makes its vectors.
//!
//! Invariant: a reply that could never fit is refused before anything is computed.

use std::sync::Arc;

use zerohop_engine::{Embed, JobKind};
use zerohop_ring::ConnId;

use super::{Admitted, Outcome, Request};
use crate::{
    api::{self, Dialect},
    error::{ApiError, ErrorKind},
    reply::{Reply, embeddings},
    worker::{answering::Told, local::Local},
};

/// Vectors of one reply take at most about so many bytes, and no more than half of what all connections may hold.
const MAX_VECTORS: usize = 64 << 20;

fn too_many_vectors(bytes: usize, most: usize) -> ApiError {
    let text = format!(
        "Invalid 'input': the reply would have about {bytes} bytes, more than {most}. Send fewer inputs at once, or \
         ask for 'encoding_format': 'base64'."
    );
    ApiError::new(ErrorKind::InvalidRequest, text).at("input")
}

impl Request {
    /// Texts to be turned into vectors.
    pub(super) fn embeddings(
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
            api::embeddings::embeddings(body, scratch, strict)
        });
        let (request, index, _) = match read {
            Ok(read) => read,
            Err(error) => return self.refuse(&error, out, local),
        };
        let model = Arc::clone(by.snapshot.model(index));
        let numbers = request.dimensions.map_or(model.engine.vector_size(), |asked| {
            model.engine.vector_size().min(asked as usize)
        });
        let bytes = embeddings::size_of_reply(request.inputs.len(), numbers, request.format);
        let most = MAX_VECTORS.min(usize::try_from(local.budget().limit() / 2).unwrap_or(usize::MAX));
        if bytes > most {
            return self.refuse(&too_many_vectors(bytes, most), out, local);
        }
        let meta = self.plain_meta(&request.model, &model, local);
        let kind = JobKind::Embed(Embed {
            inputs: request.inputs,
            dimensions: request.dimensions,
        });
        let told = Told::Chat(Reply::of_vectors(meta, request.format, bytes));
        self.submit(vec![kind], conn, told, &model, out, local)
    }
}
