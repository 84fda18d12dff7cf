//! Clients that go away while the daemon still works for them: they get no answer, and keep no place from others.

use super::support::{Daemon, Place, within};
use sanlock_daemon::SOCKET_NAME;
use sanlock_wire::Name;
use sanlock_wire::Request;
use sanlock_wire::flags::{ConfigCommand, RemFlags};
use sanlock_wire::types::HostEvent;
use std::io::{Read, Write};
use std::net::Shutdown;
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
