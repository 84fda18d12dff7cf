//! Recorded replies: each decodes and re-encodes to the recorded bytes, padding excepted, and the daemon's constructors
//! make the same headers.

use crate::transcript::{Direction, Transcript};
use sanlock_wire::{
    Attachment, Command, EventMessage, Header, Lockspace, Reply, ReplyBody, ReplyDecoder, Request,
    RequestBody, RequestDecoder, StateType,
};

/// A request, its reply and the reply's recorded bytes.
struct Exchange {
    name: String,
    request: Request,
    reply: Reply,
    raw: Vec<u8>,
}

fn exchanges() -> Vec<Exchange> {
    crate::transcript::all().iter().filter(|t| !t.name.starts_with("385/61")).flat_map(exchanges_of).collect()
}

/// Requests that got no reply (REGISTER, SHUTDOWN, unanswered ones) are left out.
fn exchanges_of(transcript: &Transcript) -> Vec<Exchange> {
    let mut all = Vec::new();
    for connection in transcript.connections() {
        let name = format!("{} conn {connection}", transcript.name);
        let sent = transcript.stream(connection, Direction::ToDaemon);
        let received = transcript.stream(connection, Direction::ToClient);
        let (mut sent, mut received) = (sent.as_slice(), received.as_slice());
        let mut decoder = RequestDecoder::new();
        while let Some(request) = decoder.feed(&mut sent).unwrap() {
            let Some(command) = request.header.command() else { continue };
            if matches!(command, Command::Register | Command::Shutdown) || received.is_empty() {
                continue;
            }
            if matches!(request.body, RequestBody::Unsupported(_)) {
                // Commands of 5.1.1 have replies of their own, whose headers are like all others.
                let header = Header::decode(received[..32].try_into().unwrap()).unwrap();
                assert_eq!(header.cmd, request.header.cmd, "{name}");
                received = received.get(header.length as usize..).unwrap_or_default();
                continue;
            }
            let before = received;
            let reply = read(command, &mut received, &name);
            let raw = before[..before.len() - received.len()].to_vec();
            let stream = matches!(request.body, RequestBody::RegEvent { .. });
            all.push(Exchange { name: name.clone(), request, reply, raw });
            if stream {
                break;
            }
        }
    }
    all
}

/// Reads as a client does: only what the decoder wants.
fn read(command: Command, received: &mut &[u8], name: &str) -> Reply {
    let mut decoder = ReplyDecoder::new(command);
    loop {
        if received.is_empty() {
            return decoder.end().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let (mut piece, rest) = received.split_at(decoder.wants().min(received.len()));
        let reply = decoder.feed(&mut piece).unwrap();
        assert!(piece.is_empty());
        *received = rest;
        if let Some(reply) = reply {
            return reply;
        }
    }
}

/// Offsets of padding bytes in an encoded reply.
fn padding(reply: &Reply) -> Vec<usize> {
    let mut all = Vec::new();
    match &reply.body {
        ReplyBody::Lockspace(_) => all.extend(32 + 60..32 + 64),
        ReplyBody::Lockspaces(list) => {
            for index in 0..list.len() {
                let start = 32 + index * Lockspace::SIZE;
                all.extend(start + 60..start + 64);
            }
        }
        ReplyBody::States(records) => {
            let mut start = 32;
            for record in records {
                all.extend((start + 12..start + 16).chain(start + 76..start + 80));
                let mut bytes = Vec::new();
                record.encode(&mut bytes);
                if let Attachment::Lockspace(_) = record.attachment {
                    let attached = start + bytes.len() - Lockspace::SIZE;
                    all.extend(attached + 60..attached + 64);
                }
                start += bytes.len();
            }
        }
        _ => {}
    }
    all
}

#[test]
fn every_recorded_reply_decodes_and_reencodes() {
    let all = exchanges();
    assert!(all.len() > 100);
    for Exchange { name, reply, mut raw, .. } in all {
        for offset in padding(&reply) {
            raw[offset] = 0;
        }
        assert_eq!(reply.encode(), raw, "{name}");
    }
}

#[test]
fn all_kinds_of_payload_occur() {
    let all = exchanges();
    let has = |test: fn(&ReplyBody) -> bool| all.iter().any(|e| test(&e.reply.body));
    assert!(has(|b| matches!(b, ReplyBody::States(r) if r.len() > 5)));
    assert!(has(|b| matches!(b, ReplyBody::States(r) if r.iter().any(|s| s.state_type().is_none()))));
    assert!(has(|b| matches!(b, ReplyBody::Log(_))));
    assert!(has(|b| matches!(b, ReplyBody::StateString(_))));
    assert!(has(|b| matches!(b, ReplyBody::Lockspace(_))));
    assert!(has(|b| matches!(b, ReplyBody::Resource(_))));
    assert!(has(|b| matches!(b, ReplyBody::Lockspaces(l) if !l.is_empty())));
    assert!(has(|b| matches!(b, ReplyBody::Hosts(h) if h.len() > 1)));
    assert!(has(|b| matches!(b, ReplyBody::Owners { hosts, .. } if !hosts.is_empty())));
    assert!(has(|b| matches!(b, ReplyBody::Lvb(l) if l.len() == 512)));
    assert!(has(|b| matches!(b, ReplyBody::Rentry(_))));
}

/// The daemon's constructors give the recorded headers, so also the recorded bytes.
#[test]
fn constructors_make_the_recorded_replies() {
    for Exchange { name, request, reply, .. } in exchanges() {
        let rebuilt = rebuild(&request, &reply);
        assert_eq!(rebuilt.header, reply.header, "{name}");
        if reply.header.result() >= 0 {
            assert_eq!(rebuilt.encode(), reply.encode(), "{name}");
        }
    }
}

fn rebuild(request: &Request, reply: &Reply) -> Reply {
    let header: &Header = &request.header;
    let (result, data2) = (reply.header.result(), reply.header.data2);
    match (&request.body, reply.body.clone()) {
        (RequestBody::Status, ReplyBody::States(records)) => Reply::status(header, records),
        (RequestBody::HostStatus(_), ReplyBody::States(records)) => Reply::host_status(header, records),
        (RequestBody::Renewal(_), ReplyBody::States(records)) => Reply::renewal(header, data2, records),
        (RequestBody::LogDump, ReplyBody::Log(text)) => Reply::log_dump(header, text),
        (RequestBody::Inquire, ReplyBody::StateString(state)) => Reply::inquire(header, data2, state),
        (RequestBody::ReadLockspace(ls), body) => match body {
            ReplyBody::Lockspace(ls) => Reply::read_lockspace(header, result, data2, *ls),
            _ => Reply::read_lockspace(header, result, data2, **ls),
        },
        (RequestBody::ReadResource(_), ReplyBody::Resource(resource)) => {
            Reply::read_resource(header, result, resource)
        }
        (RequestBody::ReadResourceOwners(spec), body) => match body {
            ReplyBody::Owners { resource, hosts } => {
                Reply::read_resource_owners(header, result, resource, hosts)
            }
            _ => Reply::read_resource_owners(header, result, *spec.resource(), vec![]),
        },
        (RequestBody::GetLockspaces, ReplyBody::Lockspaces(list)) => Reply::get_lockspaces(header, list),
        (RequestBody::GetHosts(_), ReplyBody::Hosts(list)) => Reply::get_hosts(header, list),
        (RequestBody::GetLvb(_), ReplyBody::Lvb(lvb)) => Reply::get_lvb(header, lvb),
        (RequestBody::Version, _) => Reply::version(header, data2),
        (RequestBody::SetConfig(_), _) => Reply::set_config(header, result),
        (RequestBody::ShutdownWait, _) if result == 0 => Reply::shutdown_done(),
        (
            RequestBody::UpdateRindex(..)
            | RequestBody::LookupRindex(..)
            | RequestBody::CreateResource(..)
            | RequestBody::DeleteResource(..),
            body,
        ) => match body {
            ReplyBody::Rentry(rentry) => Reply::rindex(header, result, rentry),
            _ => Reply::rindex(header, result, sanlock_wire::Rentry::new(Default::default(), 0)),
        },
        _ => Reply::result(header, result),
    }
}

#[test]
fn an_event_message_is_read_and_written() {
    let received = crate::transcript::load("385/46").stream(1, Direction::ToClient);
    let raw: [u8; EventMessage::MESSAGE_LEN] = received[32..].try_into().unwrap();
    let message = EventMessage::decode(&raw).unwrap();
    assert_eq!(message.event.event.get(), 0x11);
    assert_eq!(message.event.data.get(), 0x22);
    assert_eq!((message.from_host_id.get(), message.from_generation.get()), (2, 1));
    assert_eq!(message.encode(), raw);
}

#[test]
fn status_records_mean_what_the_command_prints() {
    let exchange = exchanges_of(&crate::transcript::load("385/37")).pop().unwrap();
    let ReplyBody::States(records) = exchange.reply.body else { panic!() };
    let kinds: Vec<StateType> = records.iter().map(|r| r.state_type().unwrap()).collect();
    use StateType::{Client, Daemon, Lockspace, Resource};
    assert_eq!(kinds, [Daemon, Client, Client, Client, Client, Lockspace, Resource, Resource]);
    assert_eq!(records[0].get("version_str"), Some(b"3.8.5".as_slice()));
    assert_eq!(records[3].data32, 4274);
    assert_eq!(records[5].get("list"), Some(b"spaces".as_slice()));
    let Attachment::Resource(spec) = &records[6].attachment else { panic!() };
    assert_eq!(spec.disks()[0].offset.get(), 11_534_336);
    assert_eq!(records[6].data64, 1);
}

#[test]
fn inquire_strings_parse_and_print_alike() {
    let mut count = 0;
    for exchange in exchanges() {
        if let ReplyBody::StateString(state) = exchange.reply.body {
            let specs = sanlock_wire::strings::state_to_args(&state).unwrap();
            assert_eq!(u32::try_from(specs.len()).unwrap(), exchange.reply.header.data2);
            assert_eq!(sanlock_wire::strings::args_to_state(&specs).unwrap(), state);
            count += 1;
        }
    }
    assert!(count > 5);
}

#[test]
fn a_cut_reply_is_an_error() {
    for Exchange { name, request, raw, reply } in exchanges() {
        // A stream of records may end after any record; elsewhere every byte counts.
        let Some(command) = request.header.command() else { continue };
        let streams = matches!(reply.body, ReplyBody::States(_));
        let cut = raw.len() - 1;
        if streams && cut < 32 {
            continue;
        }
        let result = sanlock_wire::reply_decoder::decode_stream(command, &raw[..cut]);
        assert!(result.is_err() || (streams && raw.len() == 32), "{name}: {result:?}");
    }
}
