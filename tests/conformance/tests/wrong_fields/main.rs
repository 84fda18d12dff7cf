//! Every command of the socket with every field wrong in turn (socket-protocol.md 2.6, 4, 7).
//!
//! A case is a request that would be granted but for one field (or one pair of flags). It must be answered with the specified code,
//! with no more and no fewer bytes than belong to the answer, and it must change nothing: `status -D`, the bytes of every file of the
//! storage and the value block of a held lease are the same before and after, but for what a renewal writes. The requests as they
//! should be are sent at the end of each group: it was the wrong field that made the difference.
//!
//! One daemon serves all cases of a group. Where the two programs are to differ the case says so; what makes the original hang,
//! crash or lose its place runs on ours only (socket-protocol.md 15).

mod acquire;
mod arena;
mod asking;
mod daemon;
mod events;
mod holder;
mod index;
mod join;
mod message;
mod tools;
mod value;
