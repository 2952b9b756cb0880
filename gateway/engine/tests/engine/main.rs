//! The engine with the real runtime and the bundled model. What the machine lacks is skipped aloud.

mod batching;
mod damage;
mod drawing;
mod encoder;
mod forms;
mod prompts;
mod schemas;
mod service;
mod skip;
mod support;
