//! The client against a stub daemon that plays recorded replies, and against daemons that misbehave.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use sanlock_client::wire::flags::*;
use sanlock_client::wire::request::Refusal;
use sanlock_client::wire::{
    Command, Disk, Header, Lockspace, Name, Options, Reply, Request, RequestBody, RequestDecoder, Resource,
    ResourceSpec, Target,
};
use sanlock_client::{Client, ClientError, Registered};
use signal::{a_plain_write_raises_sigpipe, raises_sigpipe};
use tempfile::TempDir;
use transcript::{Direction, Event, Transcript};

mod signal;
#[path = "../../wire/tests/wire/transcript.rs"]
mod transcript;

/// A daemon whose connections each run `serve` with the connection's number, counted from 1.
fn stub(
    connections: usize,
    serve: impl Fn(usize, UnixStream) + Send + Sync + 'static,
) -> (TempDir, Client, JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("sanlock.sock")).unwrap();
    let client = Client::with_run_dir(dir.path());
    let daemon = std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for number in 1..=connections {
                let (stream, _) = listener.accept().unwrap();
                let serve = &serve;
                scope.spawn(move || serve(number, stream));
            }
        });
    });
    (dir, client, daemon)
}

/// Plays one connection: checks what is sent, answers what was answered, closes.
fn play(events: &[Event], mut stream: UnixStream) {
    for event in events {
        match event.direction {
            Direction::ToDaemon => {
                let mut sent = vec![0; event.bytes.len()];
                stream.read_exact(&mut sent).unwrap();
                assert_eq!(sent, event.bytes, "the client sends other bytes than the original");
            }
            Direction::ToClient => stream.write_all(&event.bytes).unwrap(),
        }
    }
}

fn play_all(transcript: &Transcript) -> (TempDir, Client, JoinHandle<()>) {
    let numbers = transcript.connections();
    let events = transcript.events.clone();
    stub(numbers.len(), move |number, stream| {
        let connection = numbers[number - 1];
        let mine: Vec<Event> = events.iter().filter(|e| e.connection == connection).cloned().collect();
        play(&mine, stream);
    })
}

fn requests(transcript: &Transcript, connection: u32) -> Vec<Request> {
    let bytes = transcript.stream(connection, Direction::ToDaemon);
    let mut decoder = RequestDecoder::new();
    let mut input = bytes.as_slice();
    std::iter::from_fn(|| decoder.feed(&mut input).unwrap()).collect()
}

/// Whether the file shows what a client of this library can do.
fn playable(transcript: &Transcript) -> bool {
    // Hand-made messages, messages of 5.1.1 that are not ours, requests that the recorded daemon never answers.
    let special =
        ["385/61", "385/62", "385/63", "385/64", "cross/04", "cross/06", "cross/07", "cross/08", "cross/09"];
    if special.iter().any(|prefix| transcript.name.starts_with(prefix)) {
        return false;
    }
    // Sessions of 5.1.1 with itself: what it adds is not part of this library.
    if transcript.name.starts_with("511") {
        return false;
    }
    // Event streams are not part of this library.
    transcript
        .connections()
        .iter()
        .flat_map(|connection| requests(transcript, *connection))
        .all(|request| !matches!(request.header.cmd, 30 | 31))
}

/// Every recorded call, made again through this library: the same bytes are sent, and the result is the recorded one.
#[test]
fn recorded_sessions_play_again() {
    let mut played = 0;
    for transcript in transcript::all().iter().filter(|t| playable(t)) {
        let (_dir, client, daemon) = play_all(transcript);
        let mut kept = Vec::new();
        for connection in transcript.connections() {
            let mut replies = recorded_results(transcript, connection).into_iter();
            let mut registered: Option<Registered> = None;
            for request in requests(transcript, connection) {
                if request.body == RequestBody::Register {
                    registered = Some(client.register().unwrap());
                    continue;
                }
                let result = match &mut registered {
                    Some(registered) => on_registered(registered, &request),
                    None => on_plain(&client, &request),
                };
                let code = match result {
                    Ok(count) => i32::try_from(count).unwrap(),
                    Err(error) => error.result_code(),
                };
                let expected = if request.body == RequestBody::Shutdown { Some(0) } else { replies.next() };
                assert_eq!(
                    Some(code),
                    expected,
                    "{} conn {connection}: {:?}",
                    transcript.name,
                    request.header
                );
                played += 1;
            }
            kept.extend(registered);
        }
        drop(kept);
        daemon.join().unwrap_or_else(|_| panic!("{}: stub failed", transcript.name));
    }
    assert!(played > 100, "{played}");
}

/// The results in the reply headers of a connection, in order. Clients receive a header by itself.
fn recorded_results(transcript: &Transcript, connection: u32) -> Vec<i32> {
    transcript
        .events
        .iter()
        .filter(|e| e.connection == connection && e.direction == Direction::ToClient)
        .filter(|e| e.bytes.len() == 32 && e.bytes.starts_with(&[0x10, 0x20, 0x28, 0x04]))
        .map(|e| i32::from_le_bytes(e.bytes[24..28].try_into().unwrap()))
        .collect()
}

fn owner(options: &Options) -> Option<Name> {
    Some(options.owner_name)
}

fn on_registered(process: &mut Registered, request: &Request) -> Result<u32, ClientError> {
    let flags = request.header.cmd_flags;
    assert!(matches!(request.header.target(), Target::Connection));
    let done = match &request.body {
        RequestBody::Acquire { resources, options } => {
            process.acquire(AcquireFlags::from_bits_retain(flags), resources, owner(options))
        }
        RequestBody::Refused(Refusal::DiskCount { resource }) => {
            let spec = ResourceSpec::new(*resource, vec![]).unwrap();
            process.acquire(AcquireFlags::from_bits_retain(flags), &[spec], None)
        }
        RequestBody::Release(resources) => {
            return process.release(ReleaseFlags::from_bits_retain(flags), resources);
        }
        RequestBody::Inquire => process.inquire().map(drop),
        RequestBody::Restrict => process.restrict(RestrictFlags::from_bits_retain(flags)),
        RequestBody::Convert(resource) => process.convert(ConvertFlags::from_bits_retain(flags), *resource),
        RequestBody::Killpath(killpath) => {
            let flags = KillpathFlags::from_bits_retain(flags);
            process.killpath(flags, killpath.path(), killpath.args())
        }
        other => panic!("not a command of a registered connection: {other:?}"),
    };
    done.map(|()| 0)
}

fn on_plain(client: &Client, request: &Request) -> Result<u32, ClientError> {
    let (flags, data, data2) = (request.header.cmd_flags, request.header.data, request.header.data2);
    let pid = i32::from_ne_bytes(data2.to_ne_bytes());
    let done = match &request.body {
        RequestBody::AddLockspace(ls) if data == 0 => {
            client.add_lockspace(ls, AddFlags::from_bits_retain(flags))
        }
        RequestBody::AddLockspace(ls) => {
            client.add_lockspace_timeout(ls, AddFlags::from_bits_retain(flags), data)
        }
        RequestBody::RemLockspace(ls) => client.rem_lockspace(ls, RemFlags::from_bits_retain(flags)),
        RequestBody::InqLockspace(ls) => client.inq_lockspace(ls, InqFlags::from_bits_retain(flags)),
        RequestBody::Shutdown => client.shutdown(data != 0),
        RequestBody::ShutdownWait => client.shutdown_wait(data != 0),
        RequestBody::Status => client.status(data).map(drop),
        RequestBody::LogDump => {
            return client.log_dump().map(|text| u32::try_from(text.len()).unwrap());
        }
        RequestBody::Acquire { resources, options } => {
            client.acquire(pid, AcquireFlags::from_bits_retain(flags), resources, owner(options))
        }
        RequestBody::Release(resources) => {
            return client.release(pid, ReleaseFlags::from_bits_retain(flags), resources);
        }
        RequestBody::Inquire => client.inquire(pid).map(drop),
        RequestBody::Convert(resource) => {
            client.convert(pid, ConvertFlags::from_bits_retain(flags), *resource)
        }
        RequestBody::Request(spec) => client.request(spec, RequestFlags::from_bits_retain(flags), data),
        RequestBody::Align(disk) => return client.align(disk),
        RequestBody::ExamineLockspace(ls) => client.examine_lockspace(ls),
        RequestBody::ExamineResource(resource) => client.examine_resource(*resource),
        RequestBody::HostStatus(ls) => client.host_status(ls.name).map(drop),
        RequestBody::Renewal(ls) => client.renewal(ls.name).map(drop),
        RequestBody::WriteLockspace(ls) => client.write_lockspace(ls, data, data2),
        RequestBody::WriteResource(spec) => {
            client.write_resource(spec, data, data2, WriteFlags::from_bits_retain(flags))
        }
        RequestBody::ReadLockspace(ls) => client.read_lockspace(ls).map(drop),
        RequestBody::ReadResource(spec) => client.read_resource(spec).map(drop),
        RequestBody::ReadResourceOwners(spec) => client.read_resource_owners(spec).map(drop),
        RequestBody::GetLockspaces => client.get_lockspaces().map(drop),
        RequestBody::GetHosts(ls) => client.get_hosts(ls.name, ls.host_id.get()).map(drop),
        RequestBody::SetLvb { resource, lvb } => client.set_lvb(*resource, lvb),
        RequestBody::GetLvb(resource) => client.get_lvb(*resource).map(drop),
        RequestBody::Version => client.version().map(drop),
        RequestBody::SetEvent { lockspace, event } => {
            client.set_event(lockspace.name, *event, SetEventFlags::from_bits_retain(flags))
        }
        RequestBody::SetConfig(ls) => client.set_config(ls.name, data),
        RequestBody::FormatRindex(index) => {
            client.format_rindex(index, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::RebuildRindex(index) => {
            client.rebuild_rindex(index, RindexCmdFlags::from_bits_retain(flags))
        }
        RequestBody::UpdateRindex(index, entry) => {
            client.update_rindex(index, entry, RindexCmdFlags::from_bits_retain(flags)).map(drop)
        }
        RequestBody::LookupRindex(index, entry) => {
            client.lookup_rindex(index, entry, RindexCmdFlags::from_bits_retain(flags)).map(drop)
        }
        RequestBody::CreateResource(index, entry) => client
            .create_resource(index, entry, RindexCmdFlags::from_bits_retain(flags), data, data2)
            .map(drop),
        RequestBody::DeleteResource(index, entry) => {
            client.delete_resource(index, entry, RindexCmdFlags::from_bits_retain(flags))
        }
        other => panic!("not a command of a plain connection: {other:?}"),
    };
    done.map(|()| 0)
}

#[test]
fn answers_carry_what_was_recorded() {
    let (_dir, client, daemon) = play_all(&transcript::load("385/01"));
    let version = client.version().unwrap();
    assert_eq!((version.version, version.protocol), (0x0308_0500, 1));
    daemon.join().unwrap();

    let (_dir, client, daemon) = play_all(&transcript::load("385/19"));
    let lockspaces = client.get_lockspaces().unwrap();
    assert_eq!(lockspaces[0].name.name_bytes(), b"LS1");
    assert_eq!(lockspaces[0].host_id_disk.path.path().unwrap(), b"/srv/sanlk/leases1");
    let hosts = client.get_hosts(lockspaces[0].name, 0).unwrap();
    let states: Vec<_> = hosts.iter().map(|h| HostState::from_flags(h.flags.get())).collect();
    assert_eq!(states, [Some(HostState::Live); 2]);
    daemon.join().unwrap();

    let (_dir, client, daemon) = play_all(&transcript::load("385/36"));
    let inquiry = client.inquire(4274).unwrap();
    assert_eq!((inquiry.count, inquiry.resources().unwrap().len()), (2, 2));
    daemon.join().unwrap();

    let (_dir, client, daemon) = play_all(&transcript::load("385/51"));
    let (io_timeout, records) = client.renewal(Name::new("LS1").unwrap()).unwrap();
    assert_eq!(io_timeout, 1);
    assert!(records[0].get("read_ms").is_some());
    daemon.join().unwrap();
}

#[test]
fn a_missing_daemon_is_told_from_a_dead_one() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::with_run_dir(dir.path());
    assert_eq!(client.version().unwrap_err().result_code(), -2);
    drop(UnixListener::bind(client.socket_path()).unwrap());
    let error = client.version().unwrap_err();
    assert_eq!(error, ClientError::Io { op: "connect", errno: 111 });
    assert_eq!(error.name(), Some("ECONNREFUSED"));
}

#[test]
fn an_early_end_is_minus_one() {
    for answered in [0, 1, 31] {
        let (_dir, client, daemon) = stub(1, move |_, mut stream| {
            stream.read_exact(&mut [0; 32]).unwrap();
            stream.write_all(&Request::version().encode()[..answered]).unwrap();
        });
        let error = client.version().unwrap_err();
        assert_eq!((&error, error.result_code()), (&ClientError::Closed, -1), "{answered} bytes");
        daemon.join().unwrap();
    }
}

/// Clients of the original cut a longer path, and reach another socket than the one that is named.
#[test]
fn a_socket_path_that_clients_of_the_original_would_cut_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (length, expected) in [(106, None), (107, Some(36)), (108, Some(36)), (200, Some(36))] {
        let fill = length - dir.path().as_os_str().len() - "//sanlock.sock".len();
        let run_dir = dir.path().join("r".repeat(fill));
        std::fs::create_dir(&run_dir).unwrap();
        let client = Client::with_run_dir(run_dir);
        assert_eq!(client.socket_path().as_os_str().len(), length);
        // It has room for one byte more than the original's address, whose last one is always NUL.
        let listener = (length < 108).then(|| UnixListener::bind(client.socket_path()).unwrap());
        match (client.register(), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(errno)) => {
                assert_eq!(error, ClientError::Io { op: "connect", errno });
                assert!(error.to_string().contains("at most 106 bytes"), "{error}");
            }
            (other, _) => panic!("{length} bytes: {other:?}"),
        }
        if let Some(listener) = listener {
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().is_ok(), expected.is_none(), "{length} bytes");
        }
    }
}

/// A daemon that reads `read` bytes of one request, sends `reply`, and closes.
fn answering(read: usize, reply: Vec<u8>) -> (TempDir, Client, JoinHandle<()>) {
    stub(1, move |_, mut stream| {
        stream.read_exact(&mut vec![0; read]).unwrap();
        stream.write_all(&reply).unwrap();
    })
}

/// A stream of state records, ended at many places: the records before it, whole, and whether that was an end between two.
#[test]
fn of_a_status_that_breaks_off_the_records_that_came_are_kept() {
    let reply = transcript::load("385/37").stream(1, Direction::ToClient);
    let (_dir, client, daemon) = answering(32, reply.clone());
    let all = client.status_arrived(0).unwrap();
    assert_eq!((all.cut, all.announced), (None, None));
    daemon.join().unwrap();
    let lengths = all.items.iter().map(|record| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes.len()
    });
    let ends: Vec<usize> = lengths.scan(32, |end, len| Some(std::mem::replace(end, *end + len))).collect();
    for cut in (32..reply.len()).step_by(53).chain(ends.clone()) {
        let (_dir, client, daemon) = answering(32, reply[..cut].to_vec());
        let arrived = client.status_arrived(0).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(arrived.items, all.items[..whole], "{cut} bytes");
        let between = ends.contains(&cut);
        assert_eq!(arrived.cut, (!between).then_some(ClientError::Closed), "{cut} bytes");
        daemon.join().unwrap();
    }
    // Before the header is complete there is no answer.
    let (_dir, client, daemon) = answering(32, reply[..31].to_vec());
    assert_eq!(client.status_arrived(0).unwrap_err(), ClientError::Closed);
    daemon.join().unwrap();
    // Whoever needs all of it is not content with some.
    let (_dir, client, daemon) = answering(32, reply[..33].to_vec());
    assert_eq!(client.status(0).unwrap_err(), ClientError::Closed);
    daemon.join().unwrap();
    // A daemon that was killed before it had read all: the kernel says so where an end would be.
    let (_dir, client, daemon) = answering(31, reply[..ends[1]].to_vec());
    let arrived = client.status_arrived(0).unwrap();
    assert_eq!((arrived.items.len(), arrived.cut), (1, Some(ClientError::Io { op: "recv", errno: 104 })));
    daemon.join().unwrap();
}

#[test]
fn of_a_log_that_breaks_off_the_text_that_came_is_kept() {
    let header = Request::log_dump().header.reply(11);
    let reply = |text: &str| [header.encode().as_slice(), text.as_bytes()].concat();
    for (text, cut) in [("", true), ("one\ntwo", true), ("one\ntwo\nend", false)] {
        let (_dir, client, daemon) = answering(32, reply(text));
        let arrived = client.log_dump_arrived().unwrap();
        assert_eq!((arrived.items.as_slice(), arrived.announced), (text.as_bytes(), Some(11)));
        assert_eq!(arrived.cut, cut.then_some(ClientError::Closed));
        daemon.join().unwrap();
    }
    let (_dir, client, daemon) = answering(32, reply("one\ntwo"));
    assert_eq!(client.log_dump().unwrap_err(), ClientError::Closed);
    daemon.join().unwrap();
}

/// -28: there are more than an answer holds. The original announces all, this project's daemon those that it sends.
#[test]
fn of_too_many_lockspaces_those_that_came_are_kept() {
    let all: Vec<Lockspace> =
        (0..949).map(|n| Lockspace::named(Name::new(format!("LS{n}")).unwrap())).collect();
    let reply = |result: i32, announced: u32, bytes: usize| {
        let request = Request::get_lockspaces().header;
        let header = Header { data2: announced, ..request.reply(result) };
        let list = Reply::get_lockspaces(&request, all.clone()).encode();
        [header.encode().as_slice(), &list[32..][..bytes]].concat()
    };
    let more = ClientError::Daemon { code: -28, command: Command::GetLockspaces };
    for (announced, came, cut) in [
        (1000, 949 * 1104, more.clone()),
        (949, 949 * 1104, more.clone()),
        (1000, 2 * 1104 + 7, ClientError::Closed),
        (1000, 0, ClientError::Closed),
        (0, 0, more.clone()),
    ] {
        let (_dir, client, daemon) = answering(32, reply(-28, announced, came));
        let arrived = client.lockspaces_arrived().unwrap();
        assert_eq!(arrived.items, all[..came / 1104]);
        assert_eq!((arrived.announced, arrived.cut), (Some(announced as usize), Some(cut)));
        daemon.join().unwrap();
    }
    let (_dir, client, daemon) = answering(32, reply(-28, 949, 949 * 1104));
    assert_eq!(client.get_lockspaces().unwrap_err(), more);
    daemon.join().unwrap();
    // An answer that should hold all and does not is none, and neither is a refusal.
    for (result, announced, came, code) in [(0, 2, 1104, -1), (0, 950, 1104, -1), (-22, 1, 1104, -22)] {
        let (_dir, client, daemon) = answering(32, reply(result, announced, came));
        assert_eq!(client.lockspaces_arrived().unwrap_err().result_code(), code);
        daemon.join().unwrap();
    }
}

#[test]
fn a_peer_that_is_no_daemon_is_an_error() {
    let (_dir, client, daemon) = stub(1, |_, mut stream| {
        stream.read_exact(&mut [0; 32]).unwrap();
        stream.write_all(&[b'x'; 32]).unwrap();
    });
    let error = client.status(0).unwrap_err();
    assert!(matches!(error, ClientError::Reply(_)), "{error}");
    assert_eq!(error.result_code(), -1);
    daemon.join().unwrap();
}

/// A daemon that has gone: an error, not a signal that ends this process.
#[test]
fn a_closing_daemon_raises_no_signal() {
    // Not before it has been introduced: that would fail as well.
    let (_dir, client, daemon) = stub(1, |_, mut stream| stream.read_exact(&mut [0; 32]).unwrap());
    let mut process = client.register().unwrap();
    daemon.join().unwrap();
    assert!(a_plain_write_raises_sigpipe());
    let raised = raises_sigpipe(|| {
        let error = process.inquire().unwrap_err();
        assert!(matches!(error.result_code(), -1 | -32 | -104), "{error}");
    });
    assert!(!raised);
    assert_eq!(process.inquire().unwrap_err(), ClientError::Desynchronised);
}

/// The answer to another command on a registered connection: nothing on it can be trusted any more.
#[test]
fn a_foreign_answer_ends_the_use_of_a_connection() {
    let (_dir, client, daemon) = stub(1, |_, mut stream| {
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(&Request::version().encode()).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    });
    let mut process = client.register().unwrap();
    assert_eq!(process.restrict(RestrictFlags::SIGKILL).unwrap_err(), ClientError::Desynchronised);
    drop(process);
    daemon.join().unwrap();
}

#[test]
fn wrong_arguments_are_refused_before_connecting() {
    let client = Client::with_run_dir("/nonexistent");
    let spec = ResourceSpec::new(Resource::new(Name::EMPTY, Name::EMPTY), vec![]).unwrap();
    let nine = vec![spec.clone(); 9];
    assert_eq!(client.acquire(1, AcquireFlags::empty(), &nine, None).unwrap_err().result_code(), -22);
    assert_eq!(client.read_resource(&spec).unwrap_err(), ClientError::NoDisks);
    assert_eq!(client.read_lockspace(&Lockspace::named(Name::EMPTY)).unwrap_err(), ClientError::NoPath);
    assert_eq!(client.set_lvb(*spec.resource(), &[]).unwrap_err().result_code(), -22);
    // These ask the daemon whatever is given; they fail in connect.
    assert_eq!(client.host_status(Name::EMPTY).unwrap_err().result_code(), -2);
    assert_eq!(client.align(&Disk::EMPTY).unwrap_err().result_code(), -2);
}

#[test]
fn the_registered_descriptor_is_inherited_unless_told_otherwise() {
    use std::os::fd::AsRawFd;
    const CLOEXEC: u32 = 0o2_000_000;
    let (_dir, client, daemon) = stub(1, |_, mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all, Request::register().encode());
    });
    let flags = |process: &Registered| {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim().to_owned();
        u32::from_str_radix(&line, 8).unwrap()
    };
    let process = client.register().unwrap();
    assert_eq!(flags(&process) & CLOEXEC, 0);
    process.set_inheritable(false).unwrap();
    assert_ne!(flags(&process) & CLOEXEC, 0);
    process.set_inheritable(true).unwrap();
    let again = Registered::from_fd(process.into_fd());
    assert_eq!(flags(&again) & CLOEXEC, 0);
    drop(again);
    daemon.join().unwrap();
}

/// Calls from many threads at once: each has its own connection.
#[test]
fn a_client_is_shared_between_threads() {
    let (_dir, client, daemon) = stub(16, |_, mut stream| {
        stream.read_exact(&mut [0; 32]).unwrap();
        stream.write_all(&Request::version().encode()).unwrap();
    });
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| client.version().unwrap());
        }
    });
    daemon.join().unwrap();
}

/// A daemon that stands still, with as many connections waiting to be accepted as there may be.
#[test]
fn a_daemon_that_accepts_nothing_is_not_waited_for_beyond_the_limit() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sanlock.sock");
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    let client = Client::with_run_dir(dir.path()).within(std::time::Duration::from_millis(200));
    let mut waiting = Vec::new();
    let error = loop {
        match client.register() {
            Ok(registered) => waiting.push(registered),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10);
    };
    assert_eq!(error.result_code(), -nix::libc::ETIMEDOUT);
    assert_eq!(client.version().unwrap_err().result_code(), -nix::libc::ETIMEDOUT);
}

/// The limit is for REGISTER. An answer that takes longer than it is no failure: the daemon may have granted the lease by then.
#[test]
fn what_is_asked_on_a_registered_connection_takes_as_long_as_it_takes() {
    let limit = std::time::Duration::from_millis(200);
    let (_dir, client, daemon) = stub(1, move |_, mut stream| {
        stream.read_exact(&mut [0; 64]).unwrap();
        std::thread::sleep(limit * 3);
        stream.write_all(&Request::restrict(RestrictFlags::SIGKILL).header.reply(0).encode()).unwrap();
    });
    let mut process = client.within(limit).register().unwrap();
    process.restrict(RestrictFlags::SIGKILL).unwrap();
    daemon.join().unwrap();
}
