//! The sanlock socket protocol: what travels over the daemon's Unix socket, both directions.
//!
//! *What it does.* Declares every structure of the protocol, decodes requests and replies from bytes that arrive in
//! pieces of any size, and encodes requests and replies. *What it does not do.* It opens no socket, reads no clock and
//! takes no decision: whether a command is allowed, and what it answers, is the daemon's business.
//!
//! Section numbers in this crate ("7.8", "socket-protocol.md 3.4") refer to the protocol specification. Three rules of it
//! shape the code:
//!
//! * `length` of a request cannot be trusted (3.4): how many bytes follow is decided by the command and by counts
//!   inside the payload. [`decoder`] has the one parser that knows this.
//! * Nothing a peer sends may make either side panic, wait for unbounded input or hold unbounded memory. Every bound is
//!   a constant of [`limits`].
//! * Padding is written as zero and never interpreted (1.3).
//!
//! Where to look: [`request::Request`] and [`reply::Reply`] are the two message types; [`decoder::RequestDecoder`] and
//! [`reply_decoder::ReplyDecoder`] make them from bytes; [`code`] explains result numbers; [`strings`] has the text
//! forms of resources.
#![forbid(unsafe_code)]

pub mod code;
pub mod command;
pub mod counters;
pub mod decoder;
pub mod flags;
pub mod header;
pub mod limits;
pub mod name;
mod reader;
pub mod reply;
pub mod reply_decoder;
pub mod request;
pub mod state;
pub mod strings;
pub mod types;

pub use command::Command;
pub use decoder::{DecodeError, RequestDecoder};
pub use header::{Header, Target};
pub use name::{DiskPath, Name, NameError, PathError};
pub use reply::{Reply, ReplyBody};
pub use reply_decoder::{ReplyDecoder, ReplyError};
pub use request::{Refusal, Request, RequestBody, Unsupported};
pub use state::{Attachment, StateDecoder, StateRecord, StateText, StateType};
pub use types::{
    Disk, EventMessage, Host, HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex,
};
