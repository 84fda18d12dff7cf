//! Answers of which counts what has arrived, although the rest never comes (command-line.md 7.1, 7.3, 7.5): STATUS, GET_LOCKSPACES and
//! LOG_DUMP, read up to where they end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use sanlock_wire::limits::{HEADER_LEN, MAX_LIST_REPLY, MAX_STATE_RECORDS};
use sanlock_wire::reply_decoder::decode_stream;
use sanlock_wire::{
    Command, Header, Lockspace, ReplyBody, ReplyError, Request, StateDecoder, StateRecord, code,
};

use crate::connection::{Until, open, receive, send_request};
use crate::error::ClientError;

/// What has arrived of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived<T> {
    /// What is whole of it, in order.
    pub items: Vec<T>,
    /// How many there are according to the answer; of state records it does not say.
    pub announced: Option<usize>,
    /// Why these are not all: the connection failed or ended early, or the daemon has more lockspaces than an answer holds (`Daemon` with -28).
    pub cut: Option<ClientError>,
}

impl<T> Arrived<T> {
    /// All of it.
    ///
    /// # Errors
    /// Why these are not all.
    pub fn whole(self) -> Result<Vec<T>, ClientError> {
        self.cut.map_or(Ok(self.items), Err)
    }
}

/// STATUS (7.5). Only the end of the stream ends it, so a daemon that stops between two records cannot be told from one that is done.
pub(crate) fn status(
    socket: &Path,
    last_type: u32,
    until: Until,
) -> Result<Arrived<StateRecord>, ClientError> {
    let (fd, header) = ask(socket, &Request::status(last_type), until)?;
    if header.result() != 0 {
        return Err(refused(Command::Status, &header));
    }
    let (mut decoder, mut items) = (StateDecoder::new(), Vec::new());
    loop {
        let (bytes, cut) = take(fd.as_fd(), decoder.wants(), until);
        match decoder.feed(&mut bytes.as_slice()).map_err(ReplyError::from)? {
            Some(_) if items.len() >= MAX_STATE_RECORDS => return Err(ReplyError::TooManyRecords.into()),
            Some(record) => items.push(record),
            None => {}
        }
        if let Some(error) = cut {
            let cut = (decoder.in_record() || error != ClientError::Closed).then_some(error);
            return Ok(Arrived { items, announced: None, cut });
        }
    }
}

/// LOG_DUMP (7.6).
pub(crate) fn log_dump(socket: &Path, until: Until) -> Result<Arrived<u8>, ClientError> {
    let (fd, header) = ask(socket, &Request::log_dump(), until)?;
    let announced = usize::try_from(header.result()).map_err(|_| refused(Command::LogDump, &header))?;
    bounded(announced)?;
    let (items, cut) = take(fd.as_fd(), announced, until);
    Ok(Arrived { items, announced: Some(announced), cut })
}

/// GET_LOCKSPACES (7.21). With -28 come those that fit, whether their number is announced or that of all; an answer of result 0 is whole.
pub(crate) fn lockspaces(socket: &Path, until: Until) -> Result<Arrived<Lockspace>, ClientError> {
    let (fd, header) = ask(socket, &Request::get_lockspaces(), until)?;
    let announced = header.data2 as usize;
    let sent = match header.result() {
        0 => bounded(announced.saturating_mul(Lockspace::SIZE))?,
        code::ENOSPC => announced.min(MAX_LIST_REPLY / Lockspace::SIZE) * Lockspace::SIZE,
        _ => return Err(refused(Command::GetLockspaces, &header)),
    };
    let (mut bytes, mut cut) = take(fd.as_fd(), sent, until);
    if header.result() != 0 {
        cut = cut.or_else(|| Some(refused(Command::GetLockspaces, &header)));
    } else if let Some(error) = cut {
        return Err(error);
    }
    let whole = bytes.len() / Lockspace::SIZE;
    bytes.truncate(whole * Lockspace::SIZE);
    // Read as the answer of a daemon that has only these.
    let header = Header { data: 0, data2: u32::try_from(whole).unwrap_or(0), ..header };
    let reply = decode_stream(Command::GetLockspaces, &[header.encode().as_slice(), &bytes].concat())?;
    let ReplyBody::Lockspaces(items) = reply.body else { return Err(ClientError::Closed) };
    Ok(Arrived { items, announced: Some(announced), cut })
}

/// Sends a request on a fresh connection, and reads the header of the answer.
fn ask(socket: &Path, request: &Request, until: Until) -> Result<(OwnedFd, Header), ClientError> {
    let fd = open(socket, false, until)?;
    send_request(fd.as_fd(), request, until)?;
    let (bytes, cut) = take(fd.as_fd(), HEADER_LEN, until);
    if let Some(error) = cut {
        return Err(error);
    }
    let bytes = bytes.as_slice().try_into().map_err(|_| ClientError::Closed)?;
    Ok((fd, Header::decode(bytes).map_err(ReplyError::from)?))
}

/// Reads `len` bytes. Where fewer come, also why.
fn take(fd: BorrowedFd<'_>, len: usize, until: Until) -> (Vec<u8>, Option<ClientError>) {
    let (mut bytes, mut got) = (vec![0; len], 0);
    let mut cut = None;
    while got < len && cut.is_none() {
        match receive(fd, bytes.get_mut(got..).unwrap_or(&mut []), until) {
            Ok(0) => cut = Some(ClientError::Closed),
            Ok(more) => got += more,
            Err(error) => cut = Some(error),
        }
    }
    bytes.truncate(got);
    (bytes, cut)
}

fn refused(command: Command, header: &Header) -> ClientError {
    ClientError::Daemon { code: header.result(), command }
}

fn bounded(announced: usize) -> Result<usize, ReplyError> {
    let max = MAX_LIST_REPLY;
    if announced > max { Err(ReplyError::TooLong { announced, max }) } else { Ok(announced) }
}
