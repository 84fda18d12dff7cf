//! The socket protocol, both directions, as daemon and client decode it.

use sanlock_wire::decoder::decode_all;
use sanlock_wire::limits::{
    HEADER_LEN, MAX_ACQUIRE_RESOURCES, MAX_DISKS, MAX_INQUIRE, MAX_LIST_REPLY, MAX_LVB,
    MAX_RELEASE_RESOURCES, MAX_REQUEST_PAYLOAD, MAX_SKIP, MAX_STATE_RECORDS, MAX_STATE_TEXT_ACCEPTED,
};
use sanlock_wire::reply_decoder::decode_stream;
use sanlock_wire::types::EventMessage;
use sanlock_wire::{
    Attachment, Command, DecodeError, ReplyBody, ReplyDecoder, Request, RequestBody, RequestDecoder,
    StateDecoder,
};

use crate::data::Data;

/// Requests as the daemon reads them. The first two bytes choose the sizes of the pieces in which the rest arrives.
///
/// * How the bytes are cut makes no difference to what is decoded.
/// * A reader that reads no more than the decoder wants never has bytes of the next message in hand.
/// * What is held is within the limits, and every request of the grammar is within its own.
/// * A complete request, encoded again, decodes to itself.
pub fn requests(data: &[u8]) {
    let mut data = Data::new(data);
    let sizes = [1 + usize::from(data.byte()), 1 + usize::from(data.byte()) * 16];
    let bytes = data.rest();
    let (whole, error) = decode_all(bytes);
    let (pieces, piece_error) = in_pieces(bytes, sizes);
    assert_eq!((&whole, error), (&pieces, piece_error));
    for request in &whole {
        check_request(request);
    }
    if let Some(error) = error {
        drop(error.to_string());
    }
}

fn in_pieces(mut bytes: &[u8], sizes: [usize; 2]) -> (Vec<Request>, Option<DecodeError>) {
    let mut decoder = RequestDecoder::new();
    let mut requests = Vec::new();
    for size in sizes.into_iter().cycle() {
        let wanted = decoder.wants();
        assert!(wanted >= 1 && wanted <= MAX_SKIP.max(MAX_REQUEST_PAYLOAD));
        let (mut now, rest) = bytes.split_at(size.min(wanted).min(bytes.len()));
        bytes = rest;
        match decoder.feed(&mut now) {
            Ok(request) => requests.extend(request),
            Err(error) => {
                assert_eq!((decoder.wants(), decoder.feed(&mut &[0_u8; 64][..])), (0, Err(error)));
                return (requests, Some(error));
            }
        }
        assert!(now.is_empty(), "no more is read than the decoder wants");
        assert!(decoder.buffered() <= MAX_REQUEST_PAYLOAD);
        if bytes.is_empty() {
            assert_eq!(decoder.end().is_err(), decoder.in_message());
            break;
        }
    }
    (requests, None)
}

fn check_request(request: &Request) {
    match &request.body {
        RequestBody::Acquire { resources, .. } => {
            assert!(resources.len() <= MAX_ACQUIRE_RESOURCES);
            assert!(resources.iter().all(|r| (1..=MAX_DISKS).contains(&r.disks().len())));
        }
        RequestBody::Release(resources) => assert!(resources.len() <= MAX_RELEASE_RESOURCES),
        RequestBody::SetLvb { lvb, .. } => assert!((1..=MAX_LVB).contains(&lvb.len())),
        RequestBody::Killpath(killpath) => {
            assert!(killpath.path().len() < 128 && killpath.args().len() < 128)
        }
        _ => {}
    }
    match &request.body {
        RequestBody::Refused(refusal) => assert!(refusal.code() < 0),
        RequestBody::Unsupported(_) => {}
        // What was to be skipped is not part of the request.
        RequestBody::Release(_) => {}
        _ => {
            let bytes = request.encode();
            let (again, error) = decode_all(&bytes);
            assert_eq!((again.as_slice(), error), (std::slice::from_ref(request), None));
        }
    }
}

/// Replies as the client reads them. The first byte is the command that was sent, the second the sizes of the pieces.
///
/// * How the bytes are cut makes no difference.
/// * What is held is bounded by the limits, and by a multiple of the bytes received.
pub fn replies(data: &[u8]) {
    let mut data = Data::new(data);
    let Some(command) = data.pick(Command::ALL) else { return };
    let size = 1 + usize::from(data.byte());
    let bytes = data.rest();
    let whole = decode_stream(command, bytes);
    let mut decoder = ReplyDecoder::new(command);
    let mut pieces = None;
    for mut piece in bytes.chunks(size) {
        while !piece.is_empty() && pieces.is_none() {
            assert!(decoder.wants() >= 1);
            // As the client does, which reads no more than is wanted.
            let (mut now, rest) = piece.split_at(decoder.wants().min(piece.len()));
            piece = rest;
            pieces = match decoder.feed(&mut now) {
                Ok(reply) => reply.map(Ok),
                Err(error) => Some(Err(error)),
            };
        }
    }
    let pieces = pieces.unwrap_or_else(|| decoder.end());
    assert_eq!(whole, pieces);
    match whole {
        Err(error) => drop(error.to_string()),
        Ok(reply) => {
            let held = match &reply.body {
                ReplyBody::States(records) => {
                    assert!(records.len() <= MAX_STATE_RECORDS);
                    for record in records {
                        check_state(record);
                    }
                    0
                }
                ReplyBody::Lockspaces(all) => all.len() * 1104,
                ReplyBody::Hosts(all) => all.len() * 32,
                ReplyBody::Owners { hosts, .. } => hosts.len() * 32,
                ReplyBody::Log(text) => text.len(),
                ReplyBody::StateString(text) => {
                    let _parsed = sanlock_wire::strings::state_to_args(text);
                    assert!(text.len() <= MAX_INQUIRE);
                    0
                }
                ReplyBody::Lvb(bytes) => bytes.len(),
                _ => 0,
            };
            assert!(held <= MAX_LIST_REPLY && held <= bytes.len());
            // What a client would say to a daemon of its own: encoding cannot fail either.
            let again = reply.encode();
            assert!(again.len() >= HEADER_LEN);
        }
    }
}

fn check_state(record: &sanlock_wire::StateRecord) {
    assert!(record.text.len() <= MAX_STATE_TEXT_ACCEPTED);
    for (key, value) in record.items() {
        assert!(key.len() + value.len() <= record.text.len());
    }
    let _value = record.get("list");
    if let Attachment::Resource(spec) = &record.attachment {
        assert!(spec.disks().len() <= MAX_DISKS);
    }
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let mut decoder = StateDecoder::new();
    match decoder.feed(&mut bytes.as_slice()) {
        Ok(again) => assert_eq!(again.as_ref(), Some(record)),
        Err(error) => panic!("{error}: {record:?}"),
    }
}

/// State records one after the other, as STATUS, HOST_STATUS and RENEWAL replies carry them, and the messages of event streams.
pub fn states(data: &[u8]) {
    let mut input = data;
    let mut decoder = StateDecoder::new();
    for _ in 0..64 {
        match decoder.feed(&mut input) {
            Ok(Some(record)) => check_state(&record),
            Ok(None) => {
                assert!(input.is_empty() && decoder.wants() >= 1);
                break;
            }
            Err(error) => return drop(error.to_string()),
        }
    }
    if let Some((message, _)) = data.split_first_chunk::<{ EventMessage::MESSAGE_LEN }>() {
        if let Some(event) = EventMessage::decode(message) {
            let again = event.encode();
            assert_eq!(again.first_chunk().and_then(EventMessage::decode), Some(event));
        }
    }
}
