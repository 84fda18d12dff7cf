//! The client's reply decoder: bytes in, one [`Reply`] out, without I/O.
//!
//! What follows a reply's header depends on the command that was sent, and some replies end only with the stream. Like
//! the C library (11.3) this does not compare `cmd` of the reply with the request (the answer to SHUTDOWN_WAIT has 0).
//! The magic is checked. After a failure most payloads are meaningless and are not waited for.

use crate::command::Command;
use crate::header::{BadMagic, Header};
use crate::limits::{HEADER_LEN, MAX_INQUIRE, MAX_LIST_REPLY, MAX_LVB, MAX_STATE_RECORDS};
use crate::reader::{Need, Reader};
use crate::reply::{Reply, ReplyBody};
use crate::state::{StateDecoder, StateError, StateRecord};
use crate::types::{Host, Lockspace, Rentry, Resource};

/// Why a reply cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Not a daemon.
    #[error(transparent)]
    BadMagic(#[from] BadMagic),
    /// A payload above what a daemon sends.
    #[error("reply announces {announced} bytes, at most {max} are accepted")]
    TooLong {
        /// Bytes announced.
        announced: usize,
        /// The limit for this command.
        max: usize,
    },
    /// A record that no daemon sends.
    #[error(transparent)]
    State(#[from] StateError),
    /// More than [`MAX_STATE_RECORDS`] records.
    #[error("reply with more than {MAX_STATE_RECORDS} state records")]
    TooManyRecords,
    /// The stream ended inside a reply, or before it.
    #[error("stream ended inside a reply, {missing} or more bytes early")]
    Truncated {
        /// Bytes that were still wanted, at least.
        missing: usize,
    },
}

#[derive(Debug, Clone)]
enum Phase {
    Header,
    Payload { header: Header, need: usize },
    States { header: Header, decoder: StateDecoder, records: Vec<StateRecord> },
}

/// Decoder of one reply.
#[derive(Debug, Clone)]
pub struct ReplyDecoder {
    command: Command,
    phase: Phase,
    buffer: Vec<u8>,
}

impl ReplyDecoder {
    /// A decoder of the reply to `command`.
    #[must_use]
    pub const fn new(command: Command) -> Self {
        Self { command, phase: Phase::Header, buffer: Vec::new() }
    }

    /// How many bytes to read next at most, so that nothing beyond the reply is read; at least 1.
    #[must_use]
    pub fn wants(&self) -> usize {
        match &self.phase {
            Phase::Header => HEADER_LEN.saturating_sub(self.buffer.len()),
            Phase::Payload { need, .. } => need.saturating_sub(self.buffer.len()),
            Phase::States { decoder, .. } => decoder.wants(),
        }
    }

    /// Consumes bytes from the front of `input` until the reply is complete or `input` is empty. Replies that are streams
    /// of state records complete in [`ReplyDecoder::end`].
    ///
    /// # Errors
    /// [`ReplyError`]; there is no way on after it.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, ReplyError> {
        loop {
            match &mut self.phase {
                Phase::Header => {
                    if !collect(&mut self.buffer, input, HEADER_LEN) {
                        return Ok(None);
                    }
                    let mut bytes = [0; HEADER_LEN];
                    bytes.copy_from_slice(self.buffer.get(..HEADER_LEN).unwrap_or(&[0; HEADER_LEN]));
                    self.buffer.clear();
                    let header = Header::decode(&bytes)?;
                    let streams =
                        matches!(self.command, Command::Status | Command::HostStatus | Command::Renewal);
                    self.phase = if streams && header.result() == 0 {
                        Phase::States { header, decoder: StateDecoder::new(), records: Vec::new() }
                    } else {
                        Phase::Payload { header, need: 0 }
                    };
                }
                Phase::Payload { header, need } => {
                    if !collect(&mut self.buffer, input, *need) {
                        return Ok(None);
                    }
                    match parse_payload(self.command, header, &self.buffer)? {
                        Ok(body) => return Ok(Some(Reply { header: *header, body })),
                        Err(Need(more)) => *need = more,
                    }
                }
                Phase::States { decoder, records, .. } => match decoder.feed(input)? {
                    Some(_) if records.len() >= MAX_STATE_RECORDS => return Err(ReplyError::TooManyRecords),
                    Some(record) => records.push(record),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The stream has ended: the reply, if it is one that ends this way.
    ///
    /// # Errors
    /// [`ReplyError::Truncated`] when bytes are missing.
    pub fn end(self) -> Result<Reply, ReplyError> {
        match self.phase {
            Phase::States { header, decoder, records } if !decoder.in_record() => {
                Ok(Reply { header, body: ReplyBody::States(records) })
            }
            _ => Err(ReplyError::Truncated { missing: self.wants() }),
        }
    }
}

fn collect(buffer: &mut Vec<u8>, input: &mut &[u8], need: usize) -> bool {
    let missing = need.saturating_sub(buffer.len());
    let (now, rest) = input.split_at(missing.min(input.len()));
    buffer.extend_from_slice(now);
    *input = rest;
    buffer.len() >= need
}

fn parse_payload(
    command: Command,
    header: &Header,
    payload: &[u8],
) -> Result<Result<ReplyBody, Need>, ReplyError> {
    let mut reader = Reader::new(payload);
    let ok = header.result() == 0;
    let count = header.data2 as usize;
    let announced = header.announced_payload();
    Ok(match command {
        Command::LogDump => {
            let len = bounded(usize::try_from(header.result()).unwrap_or(0), MAX_LIST_REPLY)?;
            reader.take(len, 0).map(|text| ReplyBody::Log(text.to_vec()))
        }
        // Also read after a failure: the library passes count and string on (11.4).
        Command::Inquire if announced > 0 => {
            let len = bounded(announced, MAX_INQUIRE)?;
            reader
                .take(len, 0)
                .map(|text| ReplyBody::StateString(text.split(|&b| b == 0).next().unwrap_or(&[]).to_vec()))
        }
        Command::GetLvb if ok && announced > 0 => {
            let len = bounded(announced, MAX_LVB)?;
            reader.take(len, 0).map(|lvb| ReplyBody::Lvb(lvb.to_vec()))
        }
        Command::ReadLockspace if ok => {
            reader.structure(0).map(|ls: Lockspace| ReplyBody::Lockspace(Box::new(ls)))
        }
        Command::ReadResource if ok || announced >= Resource::SIZE => {
            reader.structure(0).map(ReplyBody::Resource)
        }
        Command::ReadResourceOwners if ok => {
            let len = bounded(count.saturating_mul(Host::SIZE), MAX_LIST_REPLY)?;
            let owners = |reader: &mut Reader<'_>| {
                let resource = reader.structure::<Resource>(len)?;
                Ok(ReplyBody::Owners { resource, hosts: hosts(reader, count)? })
            };
            owners(&mut reader)
        }
        Command::GetLockspaces if ok => {
            bounded(count.saturating_mul(Lockspace::SIZE), MAX_LIST_REPLY)?;
            let list = |reader: &mut Reader<'_>| {
                let mut all = Vec::new();
                for index in 0..count {
                    all.push(reader.structure::<Lockspace>((count - index - 1) * Lockspace::SIZE)?);
                }
                Ok(ReplyBody::Lockspaces(all))
            };
            list(&mut reader)
        }
        Command::GetHosts if ok => {
            bounded(count.saturating_mul(Host::SIZE), MAX_LIST_REPLY)?;
            hosts(&mut reader, count).map(ReplyBody::Hosts)
        }
        Command::UpdateRindex | Command::LookupRindex | Command::CreateResource | Command::DeleteResource
            if ok =>
        {
            reader.structure(0).map(|rentry: Rentry| ReplyBody::Rentry(rentry))
        }
        _ => Ok(ReplyBody::Empty),
    })
}

fn hosts(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Host>, Need> {
    let mut all = Vec::new();
    for index in 0..count {
        all.push(reader.structure::<Host>((count - index - 1) * Host::SIZE)?);
    }
    Ok(all)
}

fn bounded(announced: usize, max: usize) -> Result<usize, ReplyError> {
    if announced > max { Err(ReplyError::TooLong { announced, max }) } else { Ok(announced) }
}

/// Decodes `bytes` as the whole stream of a reply to `command`. Never panics: an entry point for fuzzing.
///
/// # Errors
/// [`ReplyError`].
pub fn decode_stream(command: Command, bytes: &[u8]) -> Result<Reply, ReplyError> {
    let mut decoder = ReplyDecoder::new(command);
    match decoder.feed(&mut &*bytes)? {
        Some(reply) => Ok(reply),
        None => decoder.end(),
    }
}
