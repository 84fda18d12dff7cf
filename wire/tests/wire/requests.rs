//! Recorded requests: each decodes whatever its segmentation, and re-encodes to the recorded bytes.

use crate::transcript::{Direction, Transcript};
use sanlock_wire::flags::*;
use sanlock_wire::request::{Refusal, Unsupported};
use sanlock_wire::{Command, Header, Request, RequestBody, RequestDecoder};

/// The client's streams, without the connection whose first message has a wrong magic.
fn streams() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for transcript in crate::transcript::all().into_iter().filter(|t| !t.name.starts_with("385/61")) {
        for connection in transcript.connections() {
            let bytes = transcript.stream(connection, Direction::ToDaemon);
            all.push((format!("{} conn {connection}", transcript.name), bytes));
        }
    }
    assert!(all.len() > 100);
    all
}

/// Feeds pieces of `step` bytes; each request with the number of bytes it took. REG_EVENT ends the protocol: what
/// follows is the event stream's.
fn decode(bytes: &[u8], step: usize) -> Vec<(Request, usize)> {
    let mut decoder = RequestDecoder::new();
    let mut requests = Vec::new();
    let (mut done, mut taken) = (0, 0);
    for chunk in bytes.chunks(step) {
        let mut input = chunk;
        loop {
            let before = input.len();
            let request = decoder.feed(&mut input).unwrap();
            done += before - input.len();
            match request {
                Some(request) => {
                    let stream = request.body_is_event_stream();
                    requests.push((request, done - taken));
                    taken = done;
                    if stream {
                        return requests;
                    }
                }
                None => break,
            }
        }
    }
    decoder.end().unwrap();
    requests
}

trait EventStream {
    fn body_is_event_stream(&self) -> bool;
}
impl EventStream for Request {
    fn body_is_event_stream(&self) -> bool {
        matches!(self.body, RequestBody::RegEvent { .. })
    }
}

#[test]
fn every_recorded_request_decodes_and_reencodes() {
    let mut seen = std::collections::BTreeSet::new();
    for (name, bytes) in streams() {
        let mut pos = 0;
        for (request, len) in decode(&bytes, bytes.len()) {
            let raw = &bytes[pos..pos + len];
            pos += len;
            seen.insert(request.header.cmd);
            match request.body {
                RequestBody::Refused(_) | RequestBody::Unsupported(_) => {
                    assert_eq!(len, request.header.length as usize, "{name}");
                    assert_eq!(request.encode(), raw[..32], "{name}");
                }
                _ => assert_eq!(request.encode(), raw, "{name}"),
            }
        }
    }
    let expected: Vec<u32> = (1..=44).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn segmentation_does_not_matter() {
    for (name, bytes) in streams() {
        let whole = decode(&bytes, bytes.len());
        for step in [1, 3, 32, 33, 100, 1000] {
            assert_eq!(decode(&bytes, step), whole, "{name}, pieces of {step}");
        }
    }
}

#[test]
fn reading_what_is_wanted_never_crosses_a_message() {
    for (name, bytes) in streams() {
        let mut decoder = RequestDecoder::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let wanted = decoder.wants();
            assert!(wanted > 0 && wanted <= rest.len(), "{name}: wants {wanted} of {}", rest.len());
            let (mut input, tail) = rest.split_at(wanted);
            rest = tail;
            if let Some(request) = decoder.feed(&mut input).unwrap() {
                assert!(!decoder.in_message());
                if request.body_is_event_stream() {
                    break;
                }
            }
            assert!(input.is_empty(), "{name}");
        }
    }
}

/// The client's constructors give the recorded bytes, headers and their wrong lengths included.
#[test]
fn constructors_make_the_recorded_requests() {
    for (name, bytes) in streams() {
        let hand_made = ["385/62", "385/63", "385/64"].iter().any(|prefix| name.starts_with(prefix));
        if hand_made {
            continue;
        }
        for (request, _) in decode(&bytes, bytes.len()) {
            if let Some(mut rebuilt) = rebuild(&request) {
                if name.starts_with("511") {
                    // It has flags that are not ours to send.
                    rebuilt.header.cmd_flags = request.header.cmd_flags;
                }
                assert_eq!(rebuilt.header, request.header, "{name}");
                assert_eq!(rebuilt.encode(), request.encode(), "{name}");
            }
        }
    }
}

/// The same request by way of a constructor; `None` for what a client cannot ask for.
fn rebuild(request: &Request) -> Option<Request> {
    let Header { cmd_flags: flags, data, data2, .. } = request.header;
    let target = request.header.target();
    Some(match request.body.clone() {
        RequestBody::Register => Request::register(),
        RequestBody::AddLockspace(ls) => Request::add_lockspace(*ls, AddFlags::from_bits_retain(flags), data),
        RequestBody::RemLockspace(ls) => Request::rem_lockspace(*ls, RemFlags::from_bits_retain(flags)),
        RequestBody::Shutdown => Request::shutdown(data != 0),
        RequestBody::Status => Request::status(data),
        RequestBody::LogDump => Request::log_dump(),
        RequestBody::Acquire { resources, options } => {
            Request::acquire(target, AcquireFlags::from_bits_retain(flags), resources, options).unwrap()
        }
        RequestBody::Release(resources) => {
            Request::release(target, ReleaseFlags::from_bits_retain(flags), resources).unwrap()
        }
        // 5.1.1's client id flag is not one of ours.
        RequestBody::Inquire if flags != 0 => return None,
        RequestBody::Inquire => Request::inquire(target),
        RequestBody::Restrict => Request::restrict(RestrictFlags::from_bits_retain(flags)),
        RequestBody::Request(spec) => {
            Request::request_lease(spec, RequestFlags::from_bits_retain(flags), data)
        }
        RequestBody::Align(disk) => Request::align(*disk),
        RequestBody::ExamineLockspace(ls) => Request::examine_lockspace(*ls),
        RequestBody::ExamineResource(resource) => Request::examine_resource(resource),
        RequestBody::HostStatus(ls) => Request::host_status(*ls),
        RequestBody::InqLockspace(ls) => Request::inq_lockspace(*ls, InqFlags::from_bits_retain(flags)),
        RequestBody::Killpath(killpath) => {
            Request::killpath(KillpathFlags::from_bits_retain(flags), *killpath)
        }
        RequestBody::WriteLockspace(ls) => Request::write_lockspace(*ls, data, flags, data2),
        RequestBody::WriteResource(spec) => {
            Request::write_resource(spec, data, data2, WriteFlags::from_bits_retain(flags))
        }
        RequestBody::ReadLockspace(ls) => Request::read_lockspace(*ls),
        RequestBody::ReadResource(spec) => Request::read_resource(spec),
        RequestBody::GetLockspaces => Request::get_lockspaces(),
        RequestBody::GetHosts(ls) => Request::get_hosts(*ls),
        RequestBody::ReadResourceOwners(spec) => Request::read_resource_owners(spec),
        RequestBody::SetLvb { resource, lvb } => Request::set_lvb(resource, lvb).unwrap(),
        RequestBody::GetLvb(resource) => Request::get_lvb(resource),
        RequestBody::Convert(resource) => {
            Request::convert(target, ConvertFlags::from_bits_retain(flags), resource)
        }
        RequestBody::Version => Request::version(),
        RequestBody::ShutdownWait => Request::shutdown_wait(data != 0),
        RequestBody::RegEvent { lockspace, event } => Request::reg_event(*lockspace, event),
        RequestBody::EndEvent(ls) => Request::end_event(*ls),
        RequestBody::SetEvent { lockspace, event } => {
            Request::set_event(*lockspace, event, SetEventFlags::from_bits_retain(flags))
        }
        // 5.1.1 sends a new io timeout in data2, which 3.8.5 does not know.
        RequestBody::SetConfig(_) if data == 16 => return None,
        RequestBody::SetConfig(ls) => Request::set_config(*ls, data),
        RequestBody::Renewal(ls) => Request::renewal(*ls),
        RequestBody::FormatRindex(rindex) => {
            Request::format_rindex(*rindex, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::UpdateRindex(rindex, rentry) => {
            Request::update_rindex(*rindex, rentry, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::LookupRindex(rindex, rentry) => {
            Request::lookup_rindex(*rindex, rentry, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::CreateResource(rindex, rentry) => {
            let flags = RindexCmdFlags::from_bits_retain(flags);
            Request::create_resource(*rindex, rentry, flags, data, data2)
        }
        RequestBody::DeleteResource(rindex, rentry) => {
            Request::delete_resource(*rindex, rentry, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::RebuildRindex(rindex) => {
            Request::rebuild_rindex(*rindex, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::Refused(_) | RequestBody::Unsupported(_) => return None,
    })
}

fn only(transcript: &Transcript, connection: u32) -> Vec<Request> {
    let bytes = transcript.stream(connection, Direction::ToDaemon);
    decode(&bytes, bytes.len()).into_iter().map(|(request, _)| request).collect()
}

#[test]
fn nine_resources_are_refused_and_the_next_command_follows() {
    let requests = only(&crate::transcript::load("385/64"), 1);
    let RequestBody::Refused(refusal) = &requests[1].body else { panic!("{:?}", requests[1].body) };
    assert_eq!(*refusal, Refusal::TooManyResources { count: 9, max: 8 });
    assert_eq!(refusal.code(), -7);
    assert_eq!(requests[2].header.command(), Some(Command::Inquire));
}

#[test]
fn a_resource_without_disks_is_refused() {
    let transcript = crate::transcript::load("385/29");
    let refused: Vec<i32> = transcript
        .connections()
        .into_iter()
        .flat_map(|connection| only(&transcript, connection))
        .filter_map(|request| match request.body {
            RequestBody::Refused(refusal) => Some(refusal.code()),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [-34]);
}

#[test]
fn later_commands_are_skipped_by_length() {
    let requests = only(&crate::transcript::load("cross/07"), 1);
    assert_eq!(requests[0].body, RequestBody::Unsupported(Unsupported::Command(Command::SetHost)));
}

#[test]
fn garbage_is_an_error_and_stays_one() {
    let bytes = crate::transcript::load("385/61").stream(1, Direction::ToDaemon);
    let mut decoder = RequestDecoder::new();
    let mut input = bytes.as_slice();
    let error = decoder.feed(&mut input).unwrap_err();
    assert!(error.to_string().contains("0xdeadbeef"), "{error}");
    assert_eq!(decoder.feed(&mut input), Err(error));
    assert_eq!(decoder.wants(), 0);
    // Without the garbage: an unknown command, a protocol version that is too new, and VERSION.
    let bodies: Vec<RequestBody> = decode(&bytes[32..], 4096).into_iter().map(|(r, _)| r.body).collect();
    assert_eq!(
        bodies,
        [
            RequestBody::Unsupported(Unsupported::UnknownCommand(99)),
            RequestBody::Unsupported(Unsupported::ProtocolVersion(0x10000)),
            RequestBody::Version,
        ]
    );
}
