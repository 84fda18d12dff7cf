//! The protocol against recordings of the real programs, and against arbitrary bytes.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod bounds;
mod numbers;
mod replies;
mod requests;
mod transcript;
mod wants;
