//! A request, field by field, and what is to be said to it.

use sanlock_conformance::raw::{self, Header, Resource};

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    header: Header,
    payload: Vec<u8>,
    strays: bool,
}

impl Message {
    /// A command with its payload, everything else 0.
    pub(crate) fn new(cmd: u32, payload: Vec<u8>) -> Self {
        Self { header: Header::request(cmd, payload.len()), payload, strays: false }
    }

    /// A command without payload.
    pub(crate) fn bare(cmd: u32) -> Self {
        Self::new(cmd, Vec::new())
    }

    /// ACQUIRE for the connection itself.
    pub(crate) fn acquire(resources: &[Resource]) -> Self {
        let (count, payload) = raw::acquire_payload(resources);
        Self::new(raw::cmd::ACQUIRE, payload).data(count).data2(raw::SELF)
    }

    /// The same with other command flags.
    pub(crate) fn flags(mut self, flags: u32) -> Self {
        self.header.cmd_flags = flags;
        self
    }

    /// The same with another `data`.
    pub(crate) fn data(mut self, data: u32) -> Self {
        self.header.data = data;
        self
    }

    /// The same with another `data2`.
    pub(crate) fn data2(mut self, data2: u32) -> Self {
        self.header.data2 = data2;
        self
    }

    /// The same with another `length`.
    pub(crate) fn length(mut self, length: u32) -> Self {
        self.header.length = length;
        self
    }

    /// The same with another protocol version.
    pub(crate) fn version(mut self, version: u32) -> Self {
        self.header.version = version;
        self
    }

    /// The original reads what is left of this message as the next one, so its connection is not looked at afterwards.
    pub(crate) fn strays(mut self) -> Self {
        self.strays = true;
        self
    }

    pub(crate) fn header(&self) -> Header {
        self.header
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn original_strays(&self) -> bool {
        self.strays
    }
}

/// What comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A reply with this result.
    Code(i32),
    /// Nothing for a while, and the connection stays open.
    Silence,
    /// The end of the connection instead of a reply.
    End,
}

/// What is to come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// From the original; `None`: it is not asked.
    pub(crate) reference: Option<Answer>,
    pub(crate) ours: Answer,
}

impl From<i32> for Expected {
    fn from(code: i32) -> Self {
        Answer::Code(code).into()
    }
}

impl From<Answer> for Expected {
    fn from(answer: Answer) -> Self {
        Self { reference: Some(answer), ours: answer }
    }
}

/// A deliberate difference that harms nobody on the original.
pub(crate) fn differs(reference: i32, ours: i32) -> Expected {
    Expected { reference: Some(Answer::Code(reference)), ours: Answer::Code(ours) }
}

/// The original hangs, crashes, loses its place, or does what was asked.
pub(crate) fn ours_only(code: i32) -> Expected {
    Expected { reference: None, ours: Answer::Code(code) }
}

/// 48 bytes, no NUL among them.
pub(crate) fn full_name() -> Vec<u8> {
    vec![b'n'; 48]
}

/// A path that has no end.
pub(crate) fn endless_path() -> Vec<u8> {
    vec![b'p'; 1024]
}
