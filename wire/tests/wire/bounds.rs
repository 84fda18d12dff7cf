//! Whatever bytes arrive: no panic, bounded memory, and the same result for any segmentation.

use crate::transcript::Direction;
use proptest::collection::vec;
use proptest::prelude::*;
use sanlock_wire::flags::ReleaseFlags;
use sanlock_wire::limits::{MAX_INQUIRE, MAX_LIST_REPLY, MAX_REQUEST_PAYLOAD, MAX_SKIP, MAX_STATE_RECORDS};
use sanlock_wire::reply_decoder::decode_stream;
use sanlock_wire::request::Refusal;
use sanlock_wire::{
    Command, DecodeError, Header, ReplyBody, ReplyError, Request, RequestBody, RequestDecoder, Resource,
    StateRecord, StateText, Target, decoder, strings,
};

/// Feeds pieces and checks the bounds after each.
fn decode(bytes: &[u8], step: usize) -> (Vec<Request>, Option<DecodeError>) {
    let mut decoder = RequestDecoder::new();
    let mut requests = Vec::new();
    for chunk in bytes.chunks(step) {
        let mut input = chunk;
        loop {
            match decoder.feed(&mut input) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.buffered(), 0);
                    return (requests, Some(error));
                }
            }
        }
        assert!(input.is_empty());
        assert!(decoder.buffered() <= MAX_REQUEST_PAYLOAD);
        assert!(decoder.wants() >= 1 && decoder.wants() <= MAX_REQUEST_PAYLOAD.max(MAX_SKIP));
    }
    (requests, None)
}

fn header() -> impl Strategy<Value = Header> {
    let small = || prop_oneof![0u32..40, any::<u32>(), Just(u32::MAX)];
    let length = prop_oneof![Just(32u32), 0u32..2000, 100_000u32..2_000_000, any::<u32>()];
    (
        prop_oneof![Just(1u32), any::<u32>()],
        0u32..50,
        prop_oneof![0u32..16, any::<u32>()],
        length,
        small(),
        small(),
    )
        .prop_map(|(version, cmd, cmd_flags, length, data, data2)| Header {
            version,
            cmd,
            cmd_flags,
            length,
            seq: 0,
            data,
            data2,
        })
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..300)) {
        let whole = decoder::decode_all(&bytes);
        prop_assert_eq!(decode(&bytes, 1), whole);
        for command in Command::ALL {
            let _ = decode_stream(*command, &bytes);
        }
        let _ = strings::state_to_args(&bytes);
    }

    #[test]
    fn arbitrary_headers_and_payloads(
        messages in vec((header(), vec(prop_oneof![3 => Just(0u8), 1 => 0u8..6, 1 => any::<u8>()], 0..3000)), 1..4),
        step in 1usize..700,
    ) {
        let mut bytes = Vec::new();
        for (header, payload) in &messages {
            bytes.extend_from_slice(&header.encode());
            bytes.extend_from_slice(payload);
        }
        prop_assert_eq!(decode(&bytes, step), decoder::decode_all(&bytes));
    }

    #[test]
    fn arbitrary_replies(header in header(), payload in vec(any::<u8>(), 0..3000)) {
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&payload);
        for command in Command::ALL {
            if let Ok(reply) = decode_stream(*command, &bytes) {
                prop_assert_eq!(reply.header, header);
            }
        }
    }

    #[test]
    fn damaged_recordings(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), value: u8) {
        let all = recordings();
        let mut bytes = all[which.index(all.len())].clone();
        let at = at.index(bytes.len());
        bytes[at] = value;
        prop_assert_eq!(decode(&bytes, 13), decoder::decode_all(&bytes));
    }

    // The library's parser drops every backslash of a path (11.6), so none is tried.
    #[test]
    fn state_strings_of_any_resource(name in "[ -~]{1,48}", path in "/[ -\\[\\]-~]{0,60}", offset: u64, lver: u64) {
        let mut resource = Resource::new(sanlock_wire::Name::new("LS").unwrap(), sanlock_wire::Name::new(&name).unwrap());
        resource.lver = lver.into();
        let disk = sanlock_wire::Disk::new(&path, offset).unwrap();
        let spec = sanlock_wire::ResourceSpec::new(resource, vec![disk]).unwrap();
        let state = strings::args_to_state([&spec, &spec]).unwrap();
        let parsed = strings::state_to_args(&state).unwrap();
        prop_assert_eq!(parsed.len(), 2);
        prop_assert_eq!(parsed[0].resource().name, spec.resource().name);
        prop_assert_eq!(parsed[0].disks(), spec.disks());
        prop_assert_eq!(parsed[1].resource().lver.get(), lver);
    }
}

fn recordings() -> &'static Vec<Vec<u8>> {
    static ALL: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        for transcript in crate::transcript::all() {
            for connection in transcript.connections() {
                all.push(transcript.stream(connection, Direction::ToDaemon));
            }
        }
        all
    })
}

/// A release header as the wire has it, `count` resources announced in `data`, `sent` in `length`.
fn release(flags: u32, count: u32, sent: usize) -> Vec<u8> {
    let mut bytes =
        Header::request(Command::Release, flags, sent * Resource::SIZE, count, u32::MAX).encode().to_vec();
    bytes.resize(bytes.len() + sent * Resource::SIZE, 0);
    bytes
}

fn bodies(bytes: &[u8]) -> Vec<RequestBody> {
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&Request::version().encode());
    let (requests, error) = decoder::decode_all(&bytes);
    assert_eq!(error, None);
    assert_eq!(requests.last().unwrap().body, RequestBody::Version, "lost the message boundary");
    requests.into_iter().rev().skip(1).map(|request| request.body).collect()
}

#[test]
fn release_reads_what_its_flags_say() {
    let count = |body: &RequestBody| match body {
        RequestBody::Release(resources) => resources.len(),
        other => panic!("{other:?}"),
    };
    // ALL with resources that the library sends and nobody wants; ORPHAN and RENAME with too many.
    for (flags, announced, sent, kept) in [
        (0, 3, 3, 3),
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 5, 5, 0),
        (4, 1, 1, 1),
        (4, 3, 3, 1),
        (2, 2, 2, 2),
        (2, 4, 4, 2),
        (3, 2, 2, 0),
    ] {
        let all = bodies(&release(flags, announced, sent));
        assert_eq!(count(&all[0]), kept, "flags {flags}, {announced} announced");
    }
    // ALL with a count and no payload: the count means nothing.
    assert_eq!(count(&bodies(&release(1, 9, 0))[0]), 0);
    // A negative count means none.
    assert_eq!(count(&bodies(&release(0, u32::MAX, 0))[0]), 0);
    // RENAME of one lease would wait for ever.
    let all = bodies(&release(2, 1, 1));
    assert_eq!(all[0], RequestBody::Refused(Refusal::TooFewResources { count: 1, needed: 2 }));
}

#[test]
fn release_of_too_many_is_skipped() {
    let all = bodies(&release(0, 1025, 1025));
    assert_eq!(all[0], RequestBody::Refused(Refusal::TooManyResources { count: 1025, max: 1024 }));
    assert!(matches!(&bodies(&release(0, 1024, 1024))[0], RequestBody::Release(r) if r.len() == 1024));
}

#[test]
fn acquire_does_not_believe_its_length() {
    let transcript = crate::transcript::load("385/21");
    let bytes = transcript.stream(1, Direction::ToDaemon);
    let (expected, _) = decoder::decode_all(&bytes);
    for length in [0u32, 32, 0x7fff_ffff] {
        let mut bytes = bytes.clone();
        bytes[32 + 16..32 + 20].copy_from_slice(&length.to_le_bytes());
        let (requests, error) = decoder::decode_all(&bytes);
        assert_eq!(error, None);
        assert_eq!(requests[1].body, expected[1].body);
    }
}

#[test]
fn set_lvb_is_sized_by_its_length() {
    let resource = || vec![0u8; Resource::SIZE];
    let message = |length: u32, payload: Vec<u8>| {
        let mut header = Header::request(Command::SetLvb, 0, 0, 0, 0);
        header.length = length;
        [header.encode().to_vec(), payload].concat()
    };
    for length in [0, 32, 159, 160] {
        let all = bodies(&message(length, resource()));
        assert_eq!(all[0], RequestBody::Refused(Refusal::LvbMissing { length }), "{length}");
    }
    let all = bodies(&message(160 + 4096, vec![1; Resource::SIZE + 4096]));
    assert!(matches!(&all[0], RequestBody::SetLvb { lvb, .. } if lvb.len() == 4096));
    let all = bodies(&message(160 + 4097, vec![1; Resource::SIZE + 4097]));
    assert_eq!(all[0], RequestBody::Refused(Refusal::LvbTooLong { len: 4097 }));
}

#[test]
fn what_was_received_of_a_message_is_counted() {
    let bytes = Header::request(Command::Version, 0, 0, 0, 0).encode();
    let mut decoder = RequestDecoder::new();
    assert_eq!(decoder.feed(&mut &bytes[..5]), Ok(None));
    assert_eq!((decoder.buffered(), decoder.wants()), (5, bytes.len() - 5));
}

#[test]
fn skipping_is_bounded_and_holds_nothing() {
    let mut header = Header::request(Command::Version, 0, MAX_SKIP, 0, 0);
    header.cmd = 77;
    let mut decoder = RequestDecoder::new();
    assert_eq!(decoder.feed(&mut header.encode().as_slice()), Ok(None));
    assert_eq!(decoder.wants(), MAX_SKIP);
    assert_eq!(decoder.header().map(|h| h.cmd), Some(77));
    let junk = vec![0xff; MAX_SKIP];
    assert_eq!(decoder.feed(&mut &junk[1..]), Ok(None));
    assert_eq!(decoder.buffered(), 0);
    let truncated = decoder.end().unwrap_err();
    assert_eq!((truncated.header.map(|h| h.cmd), truncated.missing), (Some(77), 1));
    assert!(matches!(decoder.feed(&mut &junk[..1]), Ok(Some(_))));
    header.length += 1;
    let error = RequestDecoder::new().feed(&mut header.encode().as_slice()).unwrap_err();
    assert_eq!(error, DecodeError::SkipTooLong { header, announced: MAX_SKIP + 1 });
}

#[test]
fn the_end_of_the_stream_inside_a_message_is_noticed() {
    let bytes = crate::transcript::load("385/15").stream(1, Direction::ToDaemon);
    for cut in 0..bytes.len() {
        let mut decoder = RequestDecoder::new();
        assert_eq!(decoder.feed(&mut &bytes[..cut]), Ok(None));
        match (cut, decoder.end()) {
            (0, Ok(())) => {}
            (1..32, Err(truncated)) => assert_eq!(truncated.header, None),
            (_, Err(truncated)) => {
                assert_eq!(truncated.header.map(|h| h.cmd), Some(2));
                assert_eq!(truncated.missing, bytes.len() - cut);
            }
            (_, Ok(())) => panic!("{cut} bytes pass for a whole message"),
        }
    }
}

/// A reply's bytes: its result, `data2`, and a payload that `length` announces.
fn reply(result: i32, data2: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = Header::request(Command::Version, 0, payload.len(), 0, data2);
    header.data = result as u32;
    [header.encode().as_slice(), payload].concat()
}

/// Socket-protocol.md 11.3: after a failure nothing is read that a daemon might not send.
#[test]
fn a_failure_without_payload_is_a_whole_reply_for_every_command() {
    for command in Command::ALL.iter().filter(|command| **command != Command::LogDump) {
        let failed = decode_stream(*command, &reply(-2, 3, &[])).unwrap();
        assert_eq!(failed.body, ReplyBody::Empty, "{}", command.name());
        assert_eq!((failed.header.result(), failed.header.data2), (-2, 3));
    }
    assert_eq!(decode_stream(Command::GetLvb, &reply(0, 0, &[])).unwrap().body, ReplyBody::Empty);
    // READ_RESOURCE sends a resource all the same; with less than one there is none.
    let resource = Resource::new(sanlock_wire::Name::truncated("LS"), sanlock_wire::Name::truncated("R"));
    let bytes = |len: usize| [zerocopy::IntoBytes::as_bytes(&resource), &[0; 8]].concat()[..len].to_vec();
    let body = |len| decode_stream(Command::ReadResource, &reply(-223, 0, &bytes(len))).unwrap().body;
    assert_eq!(body(Resource::SIZE), ReplyBody::Resource(resource));
    assert_eq!(body(Resource::SIZE + 1), ReplyBody::Resource(resource));
    assert_eq!(body(Resource::SIZE - 1), ReplyBody::Empty);
}

#[test]
fn a_client_accepts_replies_up_to_their_limits() {
    assert_eq!((MAX_INQUIRE, MAX_LIST_REPLY), (8_388_608, 1_048_576));
    let too_long = |max| Err(ReplyError::TooLong { announced: max + 1, max });
    let len = |command, bytes: &[u8]| {
        decode_stream(command, bytes).map(|reply| match reply.body {
            ReplyBody::Log(bytes) | ReplyBody::Lvb(bytes) | ReplyBody::StateString(bytes) => bytes.len(),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(len(Command::GetLvb, &reply(0, 0, &[1; 4096])), Ok(4096));
    assert_eq!(len(Command::GetLvb, &reply(0, 0, &[1; 4097])), too_long(4096));
    for (more, expected) in [(0, Ok(MAX_INQUIRE)), (1, too_long(MAX_INQUIRE))] {
        assert_eq!(len(Command::Inquire, &reply(0, 1, &vec![b'x'; MAX_INQUIRE + more])), expected);
    }
    for (more, expected) in [(0, Ok(MAX_LIST_REPLY)), (1, too_long(MAX_LIST_REPLY))] {
        let text = vec![b'x'; MAX_LIST_REPLY + more];
        assert_eq!(len(Command::LogDump, &reply(i32::try_from(text.len()).unwrap(), 0, &text)), expected);
    }
}

#[test]
fn a_client_accepts_65536_state_records() {
    let mut record = Vec::new();
    StateRecord { kind: 9, ..StateRecord::host(1, 1, StateText::new()) }.encode(&mut record);
    let mut bytes = reply(0, 0, &[]);
    for _ in 0..MAX_STATE_RECORDS {
        bytes.extend_from_slice(&record);
    }
    let read = decode_stream(Command::Status, &bytes).unwrap();
    assert!(matches!(read.body, ReplyBody::States(records) if records.len() == 65_536));
    bytes.extend_from_slice(&record);
    assert_eq!(decode_stream(Command::Status, &bytes), Err(ReplyError::TooManyRecords));
}

#[test]
fn a_client_sends_no_more_than_a_daemon_takes() {
    let resource = Resource::new(sanlock_wire::Name::truncated("LS"), sanlock_wire::Name::truncated("R"));
    for (len, fits) in [(0, false), (1, true), (4096, true), (4097, false)] {
        assert_eq!(Request::set_lvb(resource, vec![1; len]).is_ok(), fits, "{len}");
    }
    for (count, fits) in [(0, true), (1024, true), (1025, false)] {
        let request = Request::release(Target::Connection, ReleaseFlags::empty(), vec![resource; count]);
        assert_eq!(request.is_ok(), fits, "{count}");
    }
}
