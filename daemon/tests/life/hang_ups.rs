//! Clients that go away while the daemon still works for them: they get no answer, and keep no place from others.

use super::support::{Daemon, Place, in_time, within};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};
use nix::unistd::Pid;
use sanlock_daemon::SOCKET_NAME;
use sanlock_wire::Name;
use sanlock_wire::Request;
use sanlock_wire::flags::{AcquireFlags, AddFlags, ConfigCommand, InqFlags, ReleaseFlags, RemFlags};
use sanlock_wire::types::{HostEvent, Lockspace};
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// For what happens at once, on a machine that does other things too.
const SHORT: Duration = Duration::from_secs(30);
/// More clients than there are places.
const MANY: usize = 1100;

/// A client that sends these requests in one go.
fn says(daemon: &Daemon, requests: &[Request]) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.run_dir.join(SOCKET_NAME)).unwrap();
    stream.write_all(&requests.iter().flat_map(Request::encode).collect::<Vec<u8>>()).unwrap();
    stream
}

/// Descriptors that the daemon has open.
fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

fn joined() -> (Place, Daemon) {
    let place = Place::new();
    let daemon = Daemon::start(&place.run_dir("a"), "host1");
    place.format(&daemon);
    place.join(&daemon, 1);
    (place, daemon)
}

/// Whose lease would be held for ever: the only copies of its ends lie unread where nobody listens any more.
#[test]
fn a_lease_ends_with_the_last_copy_of_its_connection_that_somebody_can_reach() {
    let (place, daemon) = joined();
    let resource = [place.resource()];
    let mut holder = daemon.client().register().unwrap();
    holder.acquire(AcquireFlags::empty(), &resource, None).unwrap();
    let garbled = daemon.client().register().unwrap().into_fd();
    send(garbled.as_raw_fd(), &[7; 32], MsgFlags::empty()).unwrap();
    // It is heard no more from now on.
    let mut other = daemon.client().register().unwrap();
    assert!(within(SHORT, || daemon.log().contains("client connection")), "{}", daemon.log());
    let holder = holder.into_fd();
    let (ends, byte) = ([holder.as_raw_fd(), garbled.as_raw_fd()], [IoSlice::new(&[1])]);
    let rights = [ControlMessage::ScmRights(&ends)];
    sendmsg::<()>(garbled.as_raw_fd(), &byte, &rights, MsgFlags::empty(), None).unwrap();
    drop((holder, garbled));
    let mut acquire = || other.acquire(AcquireFlags::empty(), &resource, None).is_ok();
    assert!(within(SHORT, &mut acquire), "it is still held");
}

/// However many they are: what they say while the daemon stands still is heard before they are taken for stuck.
#[test]
fn clients_that_go_on_while_the_daemon_stands_still_are_answered() {
    let (_place, daemon) = joined();
    let request = Request::inq_lockspace(Lockspace::named(Name::truncated("LS")), InqFlags::empty()).encode();
    let (header, payload) = request.split_at(32);
    let mut clients: Vec<UnixStream> = (0..200)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.run_dir.join(SOCKET_NAME)).unwrap();
            stream.write_all(header).unwrap();
            stream
        })
        .collect();
    // All of them are known to be in the middle of a message.
    daemon.client().version().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(daemon.pid());
    kill(pid, Signal::SIGSTOP).unwrap();
    clients.iter_mut().for_each(|stream| stream.write_all(payload).unwrap());
    std::thread::sleep(Duration::from_secs(11));
    kill(pid, Signal::SIGCONT).unwrap();
    for (number, stream) in clients.iter_mut().enumerate() {
        stream.set_read_timeout(Some(SHORT)).unwrap();
        let answered = stream.read_exact(&mut [0; 32]);
        assert!(answered.is_ok(), "client {number}: {answered:?}");
    }
}

#[test]
fn clients_that_gave_up_waiting_leave_their_places_to_others_and_one_that_only_listens_is_answered() {
    let (place, daemon) = joined();
    let client = daemon.client();
    // What this stands for keeps the lockspace from ending.
    client.set_config(Name::truncated("LS"), ConfigCommand::Used).unwrap();
    let removal = [Request::rem_lockspace(place.lockspace(1), RemFlags::empty())];
    let mut listens = says(&daemon, &removal);
    listens.shutdown(Shutdown::Write).unwrap();
    // Whoever came before has been accepted then.
    client.version().unwrap();
    let before = descriptors(&daemon);
    for _ in 0..MANY {
        drop(says(&daemon, &removal));
    }
    assert!(within(SHORT, || client.version().is_ok() && descriptors(&daemon) <= before));
    // What they asked for goes on.
    client.set_config(Name::truncated("LS"), ConfigCommand::Unused).unwrap();
    let mut header = [0; 32];
    listens.set_read_timeout(Some(SHORT)).unwrap();
    listens.read_exact(&mut header).unwrap();
    assert_eq!(header[24..28], [0; 4], "the result");
    assert!(within(SHORT, || client.get_lockspaces().unwrap().is_empty()));
}

#[test]
fn registered_clients_that_do_not_read_cost_others_nothing() {
    let (place, daemon) = joined();
    let client = daemon.client();
    // A log that does not fit into the buffers of sockets, and is more than there is room for, if so many want it.
    let no_disk = Lockspace::new(Name::truncated("X".repeat(48)), 0, place.lockspace(1).host_id_disk);
    for _ in 0..80 {
        let mut stream = says(&daemon, &vec![Request::add_lockspace(no_disk, AddFlags::empty(), 0); 100]);
        stream.read_exact(&mut [0; 3200]).unwrap();
    }
    let size = client.log_dump().unwrap().len();
    assert!(size > 500_000, "{size}");
    let resident = || {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let hoarders: Vec<UnixStream> =
        (0..400).map(|_| says(&daemon, &[Request::register(), Request::log_dump()])).collect();
    assert!(client.log_dump().unwrap().len() >= size);
    assert!(resident() < before + (150 << 20), "{} before, {} now", before, resident());
    // Those that came first get no more; none of them is closed, nor when a descendant shuts its way.
    let (mut first, mut got) = (&hoarders[0], Vec::new());
    first.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(first.read_to_end(&mut got).is_err() && got.len() < size);
    for half in &hoarders {
        half.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let pids = || client.status(2).unwrap().iter().filter(|r| r.data32 == std::process::id()).count();
    assert!(!within(Duration::from_secs(1), || pids() != hoarders.len()));
    drop(hoarders);
    assert!(within(SHORT, || client.status(2).unwrap().len() < 20));
}

#[test]
fn an_event_stream_of_a_client_that_is_gone_already_is_closed() {
    let (place, daemon) = joined();
    let before = descriptors(&daemon);
    let ls = place.lockspace(1);
    let nothing = HostEvent { host_id: 0.into(), generation: 0.into(), event: 0.into(), data: 0.into() };
    let requests = [Request::read_lockspace(ls), Request::reg_event(ls, nothing)];
    for _ in 0..20 {
        drop(says(&daemon, &requests));
    }
    assert!(daemon.client().version().is_ok());
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        within(SHORT, || descriptors(&daemon) <= before),
        "{} now, {before} before",
        descriptors(&daemon)
    );
}

/// Whoever connects, and connects, takes no descriptor that a lease needs, however few there are.
#[test]
fn connections_leave_descriptors_to_leases() {
    let place = Place::new();
    let daemon = Daemon::start_with_descriptors(300, &place.run_dir("a"), "host1");
    let told = || daemon.log().contains("75 connections of clients at a time, not 1022");
    assert!(within(SHORT, told), "{}", daemon.log());
    place.format(&daemon);
    place.join(&daemon, 1);
    let mut held = daemon.client().register().unwrap();
    let idle: Vec<_> =
        (0..290).filter_map(|_| UnixStream::connect(daemon.run_dir.join(SOCKET_NAME)).ok()).collect();
    for _ in 0..10 {
        in_time(|| held.acquire(AcquireFlags::empty(), &[place.resource()], None)).unwrap();
        held.release(ReleaseFlags::ALL, &[]).unwrap();
    }
    assert!(within(SHORT, || daemon.log().contains("too many connections (75); one is closed, after ")));
    // Who is refused can say what it wants, and sees the end: a signal would end processes that know nothing of it.
    // It has a second for that.
    let in_peace = (0..10).filter(|_| {
        let mut refused = UnixStream::connect(daemon.run_dir.join(SOCKET_NAME)).unwrap();
        let written =
            refused.write_all(&Request::version().encode()).and_then(|()| refused.write_all(&[0; 1000]));
        written.is_ok() && refused.read(&mut [0; 32]).is_ok_and(|count| count == 0)
    });
    assert!(in_peace.count() > 5);
    // One line for many.
    let lines = daemon.log().matches("too many connections").count();
    assert!(lines < 100, "{lines}");
    drop(idle);
    assert!(within(SHORT, || daemon.client().version().is_ok()), "there is room again");
}
