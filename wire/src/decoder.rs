//! The daemon's request decoder: bytes in, complete [`Request`]s out, without I/O and without waiting.
//!
//! How long a request is follows from its command and from counts inside its payload, never from `length` (3.4). The
//! decoder therefore parses what it has; the parser either finishes or says how many bytes it needs. A connection asks
//! [`RequestDecoder::wants`] how many bytes to read at most, so it never reads beyond the end of a message and the next
//! message waits in the socket, as with the original (2.7).
//!
//! Invariants: at most [`MAX_REQUEST_PAYLOAD`] bytes are held per connection; skipped bytes are not held; every byte
//! string is accepted, refused or leads to an error, but never to a panic.
//!
//! A framing error means that message boundaries are lost. Closing the connection is the remedy for a plain one; whether
//! leases hang on the connection is for the daemon to consider.

use crate::command::Command;
use crate::flags::ReleaseFlags;
use crate::header::{BadMagic, Header};
use crate::limits::{
    HEADER_LEN, MAX_ACQUIRE_RESOURCES, MAX_LVB, MAX_RELEASE_RESOURCES, MAX_REQUEST_PAYLOAD, MAX_SKIP,
};
use crate::reader::{Need, Reader};
use crate::request::{Refusal, Request, RequestBody, Unsupported};
use crate::types::{Disk, HostEvent, Killpath, Lockspace, Options, Rentry, Resource, ResourceSpec, Rindex};

/// A buffer above this size is given back when its request is complete.
const KEEP_BUFFER: usize = 8 * 1024;

/// Why no further message can be read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not our protocol, or the peer lost the message boundaries.
    #[error(transparent)]
    BadMagic(#[from] BadMagic),
    /// A message that has to be skipped announces more than [`MAX_SKIP`] bytes.
    #[error("command {} announces {announced} bytes to skip, at most {MAX_SKIP} are possible", header.cmd)]
    SkipTooLong {
        /// The header of the message; the daemon may still answer it.
        header: Header,
        /// Bytes announced beyond those received.
        announced: usize,
    },
}

/// The stream ended inside a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stream ended {missing} or more bytes before the end of a message")]
pub struct Truncated {
    /// The header, when it was complete. The command then answers -ENOTCONN (3.6); a half-closed client sees it.
    pub header: Option<Header>,
    /// Bytes that were still wanted, at least.
    pub missing: usize,
}

#[derive(Debug, Clone)]
enum Phase {
    /// Collecting the 32 bytes of a header.
    Header,
    /// Collecting a payload of at least `need` bytes.
    Payload { header: Header, need: usize },
    /// Dropping `left` bytes, then handing out `request`.
    Skip { request: Box<Request>, left: usize },
    /// No way on.
    Failed(DecodeError),
}

/// Decoder of one connection. See the module documentation.
#[derive(Debug, Clone)]
pub struct RequestDecoder {
    phase: Phase,
    buffer: Vec<u8>,
}

impl Default for RequestDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestDecoder {
    /// A decoder at the beginning of a connection.
    #[must_use]
    pub const fn new() -> Self {
        Self { phase: Phase::Header, buffer: Vec::new() }
    }

    /// How many bytes to read next at most, so that nothing beyond the current message is read. At least 1 (and 0 after
    /// an error). More than this may be given to [`RequestDecoder::feed`], which then leaves the rest.
    #[must_use]
    pub fn wants(&self) -> usize {
        match &self.phase {
            Phase::Header => HEADER_LEN.saturating_sub(self.buffer.len()),
            Phase::Payload { need, .. } => need.saturating_sub(self.buffer.len()),
            Phase::Skip { left, .. } => *left,
            Phase::Failed(_) => 0,
        }
    }

    /// Whether a message has begun and is not complete. A peer that stays in this state for long is stuck (3.6).
    #[must_use]
    pub fn in_message(&self) -> bool {
        match &self.phase {
            Phase::Header => !self.buffer.is_empty(),
            Phase::Payload { .. } | Phase::Skip { .. } => true,
            Phase::Failed(_) => false,
        }
    }

    /// The header of the message being received, once it is complete.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        match &self.phase {
            Phase::Payload { header, .. } => Some(header),
            Phase::Skip { request, .. } => Some(&request.header),
            Phase::Header | Phase::Failed(_) => None,
        }
    }

    /// Bytes held for the current message, never above [`MAX_REQUEST_PAYLOAD`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Consumes bytes from the front of `input` until a request is complete or `input` is empty.
    ///
    /// `Ok(None)`: all input was consumed, more is needed. With `Ok(Some(..))` the rest of `input` belongs to the next
    /// message.
    ///
    /// # Errors
    /// [`DecodeError`]; the same again on every later call.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Request>, DecodeError> {
        loop {
            match &mut self.phase {
                Phase::Failed(error) => return Err(*error),
                Phase::Header => {
                    if !collect(&mut self.buffer, input, HEADER_LEN) {
                        return Ok(None);
                    }
                    if let Some(request) = self.begin()? {
                        return Ok(Some(request));
                    }
                }
                Phase::Payload { need, .. } => {
                    let need = *need;
                    if !collect(&mut self.buffer, input, need) {
                        return Ok(None);
                    }
                    if let Some(request) = self.parse()? {
                        return Ok(Some(request));
                    }
                }
                Phase::Skip { left, .. } => {
                    let now = (*left).min(input.len());
                    *input = input.get(now..).unwrap_or(&[]);
                    *left -= now;
                    if *left > 0 {
                        return Ok(None);
                    }
                    if let Phase::Skip { request, .. } = core::mem::replace(&mut self.phase, Phase::Header) {
                        return Ok(Some(self.finish(*request)));
                    }
                }
            }
        }
    }

    /// Judges the end of the stream.
    ///
    /// # Errors
    /// [`Truncated`] when it ends inside a message.
    pub fn end(&self) -> Result<(), Truncated> {
        if self.in_message() {
            Err(Truncated { header: self.header().copied(), missing: self.wants() })
        } else {
            Ok(())
        }
    }

    /// The header is complete: decide what follows.
    fn begin(&mut self) -> Result<Option<Request>, DecodeError> {
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(self.buffer.get(..HEADER_LEN).unwrap_or(&[0; HEADER_LEN]));
        self.buffer.clear();
        let header = Header::decode(&bytes).map_err(|bad| self.fail(bad.into()))?;
        let unsupported = match header.command() {
            None => Some(Unsupported::UnknownCommand(header.cmd)),
            Some(_) if !header.version_acceptable() => Some(Unsupported::ProtocolVersion(header.version)),
            Some(
                command @ (Command::Acquire2
                | Command::ReadLockspaceHost
                | Command::InitLockspaceHost
                | Command::SetHost),
            ) => Some(Unsupported::Command(command)),
            Some(_) => None,
        };
        if let Some(reason) = unsupported {
            return self.skip(header, RequestBody::Unsupported(reason), header.announced_payload());
        }
        self.phase = Phase::Payload { header, need: 0 };
        self.parse()
    }

    /// Parses what is there; hands out the request or notes how much is needed.
    fn parse(&mut self) -> Result<Option<Request>, DecodeError> {
        let Phase::Payload { header, .. } = self.phase else { return Ok(None) };
        match parse_payload(&header, &self.buffer) {
            Ok(Parsed::Complete(body)) => Ok(Some(self.finish(Request { header, body }))),
            Ok(Parsed::Surplus(body, extra)) => self.skip(header, body, extra),
            Ok(Parsed::Refused(refusal)) => {
                let rest = header.announced_payload().saturating_sub(self.buffer.len());
                self.skip(header, RequestBody::Refused(refusal), rest)
            }
            Err(Need(need)) => {
                debug_assert!(need > self.buffer.len() && need <= MAX_REQUEST_PAYLOAD);
                self.phase = Phase::Payload { header, need };
                Ok(None)
            }
        }
    }

    fn skip(
        &mut self,
        header: Header,
        body: RequestBody,
        left: usize,
    ) -> Result<Option<Request>, DecodeError> {
        if left > MAX_SKIP {
            return Err(self.fail(DecodeError::SkipTooLong { header, announced: left }));
        }
        let request = Request { header, body };
        if left == 0 {
            return Ok(Some(self.finish(request)));
        }
        self.release_buffer();
        self.phase = Phase::Skip { request: Box::new(request), left };
        Ok(None)
    }

    fn finish(&mut self, request: Request) -> Request {
        self.release_buffer();
        self.phase = Phase::Header;
        request
    }

    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.buffer = Vec::new();
        self.phase = Phase::Failed(error);
        error
    }

    fn release_buffer(&mut self) {
        self.buffer.clear();
        if self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = Vec::new();
        }
    }
}

/// Moves bytes from `input` to `buffer` until it holds `need`; whether it does.
fn collect(buffer: &mut Vec<u8>, input: &mut &[u8], need: usize) -> bool {
    let missing = need.saturating_sub(buffer.len());
    let (now, rest) = input.split_at(missing.min(input.len()));
    buffer.extend_from_slice(now);
    *input = rest;
    buffer.len() >= need
}

enum Parsed {
    Complete(RequestBody),
    /// Complete, but this many bytes follow that nobody wants.
    Surplus(RequestBody, usize),
    Refused(Refusal),
}

/// The grammar of section 6: what follows the header of each command.
fn parse_payload(header: &Header, payload: &[u8]) -> Result<Parsed, Need> {
    let mut reader = Reader::new(payload);
    let Some(command) = header.command() else {
        return Ok(Parsed::Complete(RequestBody::Unsupported(Unsupported::UnknownCommand(header.cmd))));
    };
    let body = match command {
        Command::Register => RequestBody::Register,
        Command::AddLockspace => RequestBody::AddLockspace(lockspace(&mut reader)?),
        Command::RemLockspace => RequestBody::RemLockspace(lockspace(&mut reader)?),
        Command::Shutdown => RequestBody::Shutdown,
        Command::Status => RequestBody::Status,
        Command::LogDump => RequestBody::LogDump,
        Command::Acquire => return acquire(header, &mut reader),
        Command::Release => return release(header, &mut reader),
        Command::Inquire => RequestBody::Inquire,
        Command::Restrict => RequestBody::Restrict,
        Command::Request => return with_disks(&mut reader, RequestBody::Request),
        Command::Align => RequestBody::Align(Box::new(reader.structure::<Disk>(0)?)),
        Command::ExamineLockspace => RequestBody::ExamineLockspace(lockspace(&mut reader)?),
        Command::ExamineResource => RequestBody::ExamineResource(reader.structure(0)?),
        Command::HostStatus => RequestBody::HostStatus(lockspace(&mut reader)?),
        Command::InqLockspace => RequestBody::InqLockspace(lockspace(&mut reader)?),
        Command::Killpath => RequestBody::Killpath(Box::new(reader.structure::<Killpath>(0)?)),
        Command::WriteLockspace => RequestBody::WriteLockspace(lockspace(&mut reader)?),
        Command::WriteResource => return with_disks(&mut reader, RequestBody::WriteResource),
        Command::ReadLockspace => RequestBody::ReadLockspace(lockspace(&mut reader)?),
        Command::ReadResource => return with_disks(&mut reader, RequestBody::ReadResource),
        Command::GetLockspaces => RequestBody::GetLockspaces,
        Command::GetHosts => RequestBody::GetHosts(lockspace(&mut reader)?),
        Command::ReadResourceOwners => return with_disks(&mut reader, RequestBody::ReadResourceOwners),
        Command::SetLvb => return set_lvb(header, &mut reader),
        Command::GetLvb => RequestBody::GetLvb(reader.structure(0)?),
        Command::Convert => RequestBody::Convert(reader.structure(0)?),
        Command::Version => RequestBody::Version,
        Command::ShutdownWait => RequestBody::ShutdownWait,
        Command::RegEvent => {
            let (lockspace, event) = lockspace_event(&mut reader)?;
            RequestBody::RegEvent { lockspace, event }
        }
        Command::EndEvent => RequestBody::EndEvent(lockspace(&mut reader)?),
        Command::SetEvent => {
            let (lockspace, event) = lockspace_event(&mut reader)?;
            RequestBody::SetEvent { lockspace, event }
        }
        Command::SetConfig => RequestBody::SetConfig(lockspace(&mut reader)?),
        Command::Renewal => RequestBody::Renewal(lockspace(&mut reader)?),
        Command::FormatRindex => RequestBody::FormatRindex(Box::new(reader.structure::<Rindex>(0)?)),
        Command::UpdateRindex => entry(&mut reader, RequestBody::UpdateRindex)?,
        Command::LookupRindex => entry(&mut reader, RequestBody::LookupRindex)?,
        Command::CreateResource => entry(&mut reader, RequestBody::CreateResource)?,
        Command::DeleteResource => entry(&mut reader, RequestBody::DeleteResource)?,
        Command::RebuildRindex => RequestBody::RebuildRindex(Box::new(reader.structure::<Rindex>(0)?)),
        Command::Acquire2 | Command::ReadLockspaceHost | Command::InitLockspaceHost | Command::SetHost => {
            RequestBody::Unsupported(Unsupported::Command(command))
        }
    };
    Ok(Parsed::Complete(body))
}

fn lockspace(reader: &mut Reader<'_>) -> Result<Box<Lockspace>, Need> {
    Ok(Box::new(reader.structure::<Lockspace>(0)?))
}

fn lockspace_event(reader: &mut Reader<'_>) -> Result<(Box<Lockspace>, HostEvent), Need> {
    let lockspace = reader.structure::<Lockspace>(HostEvent::SIZE)?;
    Ok((Box::new(lockspace), reader.structure(0)?))
}

fn entry(reader: &mut Reader<'_>, body: fn(Box<Rindex>, Rentry) -> RequestBody) -> Result<RequestBody, Need> {
    let rindex = reader.structure::<Rindex>(Rentry::SIZE)?;
    Ok(body(Box::new(rindex), reader.structure(0)?))
}

fn with_disks(reader: &mut Reader<'_>, body: fn(ResourceSpec) -> RequestBody) -> Result<Parsed, Need> {
    Ok(match reader.resource_spec(0)? {
        Ok(spec) => Parsed::Complete(body(spec)),
        Err(resource) => Parsed::Refused(Refusal::DiskCount { resource }),
    })
}

/// 7.7: a count above 8 is refused before anything is read; 0 and negative counts mean no resource.
fn acquire(header: &Header, reader: &mut Reader<'_>) -> Result<Parsed, Need> {
    let count = usize::try_from(header.data_signed()).unwrap_or(0);
    if count > MAX_ACQUIRE_RESOURCES {
        let max = MAX_ACQUIRE_RESOURCES;
        return Ok(Parsed::Refused(Refusal::TooManyResources { count: header.data_signed(), max }));
    }
    let mut resources = Vec::with_capacity(count);
    for index in 0..count {
        let rest = (count - index - 1) * Resource::SIZE + Options::SIZE;
        match reader.resource_spec(rest)? {
            Ok(spec) => resources.push(spec),
            Err(resource) => return Ok(Parsed::Refused(Refusal::DiskCount { resource })),
        }
    }
    let options = reader.structure(0)?;
    Ok(Parsed::Complete(RequestBody::Acquire { resources, options }))
}

/// 7.8: the flags decide how many resources are read, whatever `data` says.
///
/// The C library sends `data` resources whatever the flags. Where `data` and `length` agree on a number, the surplus is
/// dropped and a lack is refused, instead of taking resources for headers or waiting for ever. Where they disagree, the
/// flags alone decide, as in the original.
fn release(header: &Header, reader: &mut Reader<'_>) -> Result<Parsed, Need> {
    let flags = ReleaseFlags::from_bits_truncate(header.cmd_flags);
    let count = usize::try_from(header.data_signed()).unwrap_or(0);
    let fixed = if flags.contains(ReleaseFlags::ALL) {
        Some(0)
    } else if flags.contains(ReleaseFlags::ORPHAN) {
        Some(1)
    } else if flags.contains(ReleaseFlags::RENAME) {
        Some(2)
    } else {
        None
    };
    if fixed.is_none() && count > MAX_RELEASE_RESOURCES {
        let max = MAX_RELEASE_RESOURCES;
        return Ok(Parsed::Refused(Refusal::TooManyResources { count: header.data_signed(), max }));
    }
    let number = fixed.unwrap_or(count);
    let counts_agree = count.checked_mul(Resource::SIZE) == Some(header.announced_payload());
    if counts_agree && count < number {
        let needed = if number == 1 { 1 } else { 2 };
        return Ok(Parsed::Refused(Refusal::TooFewResources { count: header.data, needed }));
    }
    let mut resources = Vec::new();
    for index in 0..number {
        resources.push(reader.structure::<Resource>((number - index - 1) * Resource::SIZE)?);
    }
    let body = RequestBody::Release(resources);
    if counts_agree && count > number {
        return Ok(Parsed::Surplus(body, (count - number) * Resource::SIZE));
    }
    Ok(Parsed::Complete(body))
}

/// 7.24: the only command whose payload is sized by `length`. Too little is -EINVAL and too much -E2BIG.
fn set_lvb(header: &Header, reader: &mut Reader<'_>) -> Result<Parsed, Need> {
    let len = header.announced_payload().saturating_sub(Resource::SIZE);
    if len > MAX_LVB {
        return Ok(Parsed::Refused(Refusal::LvbTooLong { len }));
    }
    let resource = reader.structure::<Resource>(len)?;
    if len == 0 {
        return Ok(Parsed::Refused(Refusal::LvbMissing { length: header.length }));
    }
    let lvb = reader.take(len, 0)?.to_vec();
    Ok(Parsed::Complete(RequestBody::SetLvb { resource, lvb }))
}

/// Feeds `bytes` to a new decoder and counts the requests before the first error. Never panics: an entry point for
/// fuzzing and property tests.
#[must_use]
pub fn decode_all(bytes: &[u8]) -> (Vec<Request>, Option<DecodeError>) {
    let mut decoder = RequestDecoder::new();
    let mut input = bytes;
    let mut requests = Vec::new();
    loop {
        match decoder.feed(&mut input) {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => return (requests, None),
            Err(error) => return (requests, Some(error)),
        }
    }
}
