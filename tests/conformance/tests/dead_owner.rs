//! Waiting for a dead owner, and what goes on meanwhile (socket-protocol.md 7.7, 2.5 to 2.8;
//! lease-algorithms.md 4.3). Each part takes more than a minute, so they run side by side.

use std::time::{Duration, Instant};

use sanlock_conformance::bounded;
use sanlock_conformance::dead_owner::{
    self, Abandoned, DEAD_AFTER_SECONDS, TAKE_OVER_LIMIT, now_seconds, registered,
};
use sanlock_conformance::raw::{Header, SELF, acquire_payload, cmd};
use sanlock_conformance::{Connection, Holder, Program, Scene, Storage};

#[test]
fn a_dead_owner_is_waited_for_and_its_lease_is_taken() {
    let Some(program) = Program::under_test() else { return };
    let abandoned = move |resources| dead_owner::abandon(Storage::file(), program, program, resources);
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = vec![
        ("take over".into(), Box::new(move || dead_owner::take_over(&abandoned(1)))),
        ("come back".into(), Box::new(move || dead_owner::reborn(abandoned(1)))),
        ("take the own lease".into(), Box::new(move || dead_owner::own_earlier_life(abandoned(1)))),
        ("others meanwhile".into(), Box::new(move || others_meanwhile(&abandoned(1)))),
        ("the waiting process dies".into(), Box::new(move || waiting_process_dies(&abandoned(1)))),
        ("host id in use".into(), Box::new(move || host_id_in_use(program))),
    ];
    if program == Program::Ours {
        // The original has eight workers and each waiting request occupies one.
        parts.push(("eight waiters".into(), Box::new(move || eight_waiters_delay_nobody(&abandoned(8)))));
    }
    bounded::side_by_side(parts);
}

/// For what does not wait for the owner, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The owner has been silent for long enough that no host counts it as alive any more.
const NO_LONGER_ALIVE: Duration = Duration::from_secs(12);

/// Sends an ACQUIRE of resource `n` once the owner no longer counts as alive, and returns without
/// waiting for the answer.
fn begin_waiting(abandoned: &Abandoned, connection: &mut Connection, n: u64, target: u32) {
    std::thread::sleep(NO_LONGER_ALIVE.saturating_sub(abandoned.killed.elapsed()));
    let (count, payload) = acquire_payload(&[abandoned.scene.storage().resource(n)]);
    let header = Header { data: count, data2: target, ..Header::request(cmd::ACQUIRE, payload.len()) };
    connection.set_limit(TAKE_OVER_LIMIT);
    connection.send_message(header, &payload);
    // Until the daemon is at it.
    std::thread::sleep(Duration::from_millis(500));
}

/// What has been answered by now has not waited for the dead owner, too: nobody has got its lease yet.
fn assert_owner_is_waited_for(abandoned: &Abandoned) {
    let age = now_seconds() - abandoned.last_renewal;
    assert!(age < DEAD_AFTER_SECONDS, "{age} s after the last renewal");
}

fn others_meanwhile(abandoned: &Abandoned) {
    let scene = &abandoned.scene;
    let host = scene.host(0);
    let holder = Holder::start(host, &[]);
    bounded::wait_until("the process to be registered", SOON, || holder.leases(host).is_some());
    let mut requester = host.connect();
    begin_waiting(abandoned, &mut requester, 1, holder.pid());

    let mut other = registered(host);
    assert_eq!(other.acquire_one(&scene.storage().resource(1)), -16, "being acquired by another process");
    let second = scene.storage().resource(2);
    for (what, answer) in [
        ("acquire", host.connect().acquire(std::slice::from_ref(&second), 0, Some(holder.pid()))),
        ("release", host.connect().release(std::slice::from_ref(&second), 0, Some(holder.pid()))),
        ("inquire", host.connect().inquire(Some(holder.pid())).result),
    ] {
        assert_eq!(answer, -16, "{what} of a process that is busy acquiring");
    }
    assert_eq!(other.acquire_one(&second), 0, "a free lease is not affected");
    assert_owner_is_waited_for(abandoned);

    assert_eq!(requester.receive().result(), 0, "granted in the end");
    assert_eq!(holder.leases(host).map(|leases| leases.len()), Some(1));
    assert_eq!(scene.owner(1), Some((1, 1)));
}

/// The process for which a lease is being waited dies: nobody may own the lease in the end.
fn waiting_process_dies(abandoned: &Abandoned) {
    let scene = &abandoned.scene;
    let host = scene.host(0);
    let mut holder = Holder::start(host, &[]);
    bounded::wait_until("the process to be registered", SOON, || holder.leases(host).is_some());
    let mut requester = host.connect();
    begin_waiting(abandoned, &mut requester, 1, holder.pid());
    let mut own = registered(host);
    holder.kill();
    let answer = requester.receive().result();
    assert_eq!(answer, -25, "the target of the acquire is gone");
    if abandoned.killed.elapsed() >= Duration::from_secs(DEAD_AFTER_SECONDS) {
        // The original waits on, takes the lease, and gives it back. Ours stops waiting at once.
        scene.wait_until_free(1, SOON);
    }
    own.set_limit(TAKE_OVER_LIMIT);
    assert_eq!(own.acquire_one(&scene.storage().resource(1)), 0);
}

fn host_id_in_use(program: Program) {
    let scene = Scene::joined(Storage::file(), &[program], 0);
    let second = sanlock_conformance::Host::start(program, "second");
    let begin = Instant::now();
    let mut connection = second.connect();
    connection.set_limit(TAKE_OVER_LIMIT);
    assert_eq!(connection.add_lockspace(&scene.storage().lockspace(1), 0, 1), -262);
    assert!(begin.elapsed() < Duration::from_secs(DEAD_AFTER_SECONDS + 40), "it took {:?}", begin.elapsed());
    assert_eq!(scene.host(0).connect().inq_lockspace(&scene.storage().lockspace(1), 0), 0);
}

fn eight_waiters_delay_nobody(abandoned: &Abandoned) {
    let scene = &abandoned.scene;
    let host = scene.host(0);
    let mut waiters: Vec<Connection> = (1..=8).map(|_| registered(host)).collect();
    for (n, waiter) in (1..).zip(&mut waiters) {
        begin_waiting(abandoned, waiter, n, SELF);
    }
    let mut client = registered(host);
    assert_eq!(client.acquire_one(&scene.storage().resource(9)), 0);
    assert_eq!(client.release_one(&scene.storage().resource(9)), 0);
    assert_eq!(host.connect().read_lockspace(&scene.storage().lockspace(1)).0, 0);
    assert_eq!(client.inquire(None).result, 0);
    assert_owner_is_waited_for(abandoned);
    for (n, waiter) in (1..).zip(&mut waiters) {
        assert_eq!(waiter.receive().result(), 0, "waiter {n}");
        assert_eq!(scene.owner(n), Some((1, 1)), "resource {n}");
    }
}
