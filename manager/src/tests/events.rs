use super::lab::*;
use crate::*;
use sanlock_lease::delta::Event as HostEvent;
use sanlock_lease::geometry::HostId;

fn host(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

fn event(number: u64) -> HostEvent {
    HostEvent { generation: 3, event: number, data: 9 }
}

fn set(host_id: u64, number: u64, flags: SetEventFlags) -> Command {
    Command::SetEvent { lockspace: name("ls"), host_id, event: event(number), flags }
}

/// Result, and the bits and the event told to the thread, if anything was.
fn outcome(actions: &[Action]) -> (i32, Option<(Vec<u64>, u64)>) {
    let mut result = None;
    let mut told = None;
    for action in actions {
        match action {
            Action::Reply { reply: Reply::Result(code), .. } => result = Some(*code),
            Action::Outgoing { event, bitmap, .. } => {
                told = Some((bitmap.hosts().map(HostId::get).collect(), event.event));
            }
            other => panic!("{other:?}"),
        }
    }
    (result.unwrap(), told)
}

#[test]
fn an_event_is_shown_for_six_io_timeouts_and_stays_in_the_record() {
    let (mut lab, _) = Lab::ready();
    let plain = SetEventFlags::default();
    assert_eq!(outcome(&lab.command(9, set(2, 17, plain))), (0, Some((vec![2], 17))));
    // Another one while it is shown only if it is to replace it; the same again at any time.
    assert_eq!(outcome(&lab.command(9, set(3, 18, plain))), (-16, None));
    assert_eq!(outcome(&lab.command(9, set(3, 17, plain))), (0, Some((vec![2, 3], 17))));
    let replace = SetEventFlags { replace: true, ..plain };
    assert_eq!(outcome(&lab.command(9, set(4, 18, replace))), (0, Some((vec![2, 3, 4], 18))));
    let clear_host = SetEventFlags { clear_host: true, ..plain };
    assert_eq!(outcome(&lab.command(9, set(3, 0, clear_host))), (0, Some((vec![2, 4], 18))));
    let mut told = Vec::new();
    for second in 1..=8 {
        for action in lab.tick() {
            if let Action::Outgoing { bitmap, event, .. } = action {
                told.push((second, bitmap.hosts().count(), event.event));
            }
        }
    }
    assert_eq!(told, [(7, 0, 18)], "the event stays, nobody is told to look");
    assert_eq!(outcome(&lab.command(9, set(2, 19, plain))), (0, Some((vec![2], 19))));
    let clear = SetEventFlags { clear_event: true, ..plain };
    assert_eq!(outcome(&lab.command(9, set(2, 0, clear))), (0, Some((vec![2], 0))));
    let all = SetEventFlags { all_hosts: true, ..plain };
    let (code, told) = outcome(&lab.command(9, set(2, 20, all)));
    assert_eq!((code, told.map(|(bits, _)| bits.len())), (0, Some(1999)), "all but our own");
}

#[test]
fn events_to_nowhere_are_refused() {
    let (mut lab, _) = Lab::ready();
    let plain = SetEventFlags::default();
    for host_id in [0, 2001, u64::MAX] {
        assert_eq!(lab.result(9, set(host_id, 1, plain)), -22);
    }
    let command = |lockspace| Command::SetEvent { lockspace, host_id: 2, event: event(1), flags: plain };
    assert_eq!(lab.result(9, command(name("other"))), -2);
    assert_eq!(lab.result(9, command(name(""))), -22);
    assert_eq!(lab.result(9, Command::RegEvent { lockspace: name("other") }), -2);
    assert_eq!(lab.result(9, Command::EndEvent { lockspace: name("other") }), -2);
    assert_eq!(lab.result(9, Command::EndEvent { lockspace: name("ls") }), 0);
}

#[test]
fn every_stream_gets_every_event_and_ends_with_its_lockspace() {
    let (mut lab, ls) = Lab::ready();
    let reg = || Command::RegEvent { lockspace: name("ls") };
    for conn in 100..132 {
        lab.open(conn);
        assert_eq!(lab.command(conn, reg()), [Action::BecomeStream { conn: ConnId(conn) }]);
    }
    lab.open(132);
    assert_eq!(lab.result(132, reg()), -50);
    lab.close(100);
    assert_eq!(lab.command(132, reg()), [Action::BecomeStream { conn: ConnId(132) }]);
    let noticed = |number| Event::Noticed { ls, from: host(2), generation: 6, event: event(number) };
    let delivered = lab.quiet(noticed(4));
    let to: Vec<u64> = delivered
        .iter()
        .map(|action| match action {
            Action::Deliver { conn, own, event: shown, from, generation: 6 }
                if (*own, *shown, *from) == (host(HOST), event(4), host(2)) =>
            {
                conn.0
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(to, (101..=132).collect::<Vec<_>>());
    assert_eq!(lab.quiet(noticed(0)), [], "0 is no event");
    let end = lab.remove(9, "ls");
    assert!(end.iter().all(|a| !matches!(a, Action::EndStream { .. })));
    let end = lab.quiet(Event::Left { ls, writes: LeaseWrites::Ended });
    assert_eq!(end.iter().filter(|a| matches!(a, Action::EndStream { .. })).count(), 32);
}

#[test]
fn a_notice_has_the_requests_for_held_leases_read_and_acted_upon() {
    let (mut lab, ls) = Lab::ready();
    let r = lab.hold(0, "r");
    let s = lab.hold(1, "s");
    let noticed = Event::Noticed { ls, from: host(2), generation: 6, event: event(0) };
    let leases = |actions: &[Action]| match actions {
        [Action::LookForRequests { leases, .. }] => leases.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(leases(&lab.quiet(noticed.clone())), [r, s]);
    assert_eq!(lab.quiet(noticed.clone()), [], "the bit stands for a while");
    // Asked for meanwhile: looked at again when the first look has ended.
    let examine = Command::Examine { lockspace: name("ls"), resource: Some(name("s")) };
    assert_eq!(lab.command(9, examine), [replied(9, 0)]);
    let found = |lver, force_mode| {
        vec![Request { resource: r, lver, force_mode }, Request { resource: s, lver: 7, force_mode: 1 }]
    };
    let acted = lab.looked(ls, found(8, 1));
    let kill = |signal| Action::Kill { conn: ConnId(0), pid: 100, signal };
    assert_eq!(acted[0], kill(Signal::Kill), "the other one asks for the version that is held");
    assert_eq!(leases(&acted[1..]), [s]);
    assert_eq!(lab.looked(ls, found(8, 2)), [kill(Signal::Term)]);
    assert_eq!(lab.looked(ls, found(8, 9)), [], "unknown force mode");
    assert_eq!(lab.looked(ls, found(0, 1)), [], "no request");
    assert_eq!(lab.looked(ls, found(8, 1)), [kill(Signal::Kill)]);
    let looks: Vec<Action> = (0..7).flat_map(|_| lab.tick()).collect();
    assert_eq!(leases(&looks), [r, s], "it was seen again: once more when its time is over");
    assert_eq!(lab.looked(ls, found(8, 1)), [], "nothing new");
    for _ in 0..7 {
        lab.tick();
    }
    assert_eq!(leases(&lab.quiet(noticed)), [r, s], "later the bit means something new");
}

/// The bit of a second request from the same host looks like that of the first one.
#[test]
fn a_request_written_soon_after_another_one_is_found_too() {
    let (mut lab, ls) = Lab::ready();
    let r = lab.hold(0, "r");
    let noticed = Event::Noticed { ls, from: host(2), generation: 6, event: event(0) };
    let looks = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::LookForRequests { .. }));
    let found = |force_mode| vec![Request { resource: r, lver: 8, force_mode }];
    let kill = |signal| Action::Kill { conn: ConnId(0), pid: 100, signal };
    for (first, second, expected) in
        [(2, 1, vec![kill(Signal::Kill)]), (2, 2, vec![]), (1, 2, vec![kill(Signal::Term)])]
    {
        assert!(looks(&lab.quiet(noticed.clone())));
        lab.looked(ls, found(first));
        lab.tick();
        // Written now; the last renewal that shows the bit comes before the look may be repeated.
        assert!(!looks(&lab.quiet(noticed.clone())), "not so soon");
        let looked: Vec<bool> = (0..12).map(|_| looks(&lab.tick())).collect();
        assert_eq!(looked.iter().filter(|looked| **looked).count(), 1, "{looked:?}");
        assert!(looked[4], "six io timeouts after the first look");
        let acted = lab.looked(ls, found(second));
        assert_eq!(acted, expected, "what is new is acted upon, and nothing else");
    }
}

/// The bit stands for six io timeouts; a request for several leases may wait for much longer for the last of them.
#[test]
fn a_request_for_a_lease_that_is_granted_only_later_is_found() {
    let (mut lab, ls) = Lab::ready();
    let noticed = Event::Noticed { ls, from: host(2), generation: 6, event: event(0) };
    let first = task(&lab.acquire(0, Target::Own, &["r", "s"]));
    let second = task(&lab.acquired(first, 0));
    assert_eq!(lab.quiet(noticed), [], "nobody is there to be told");
    (0..100).for_each(|_| assert!(lab.tick().is_empty()));
    let granted = lab.acquired(second, 0);
    let [r, s] = ["r", "s"].map(|name| lab.resource(name).unwrap());
    let leases = |actions: &[Action]| match actions {
        [.., Action::LookForRequests { leases, .. }] => leases.iter().map(|(id, _)| *id).collect(),
        _ => Vec::new(),
    };
    assert_eq!(leases(&granted), [r, s], "{granted:?}");
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Kill };
    assert_eq!(lab.looked(ls, vec![Request { resource: r, lver: 8, force_mode: 1 }]), [kill]);
    // Once: what is granted after it was asked for by nobody.
    lab.release(0, &["s"]);
    let third = task(&lab.acquire(1, Target::Own, &["t"]));
    assert_eq!(lab.acquired(third, 0), [replied(1, 0)]);
}

#[test]
fn a_written_request_shows_the_owners_bit() {
    let (mut lab, _) = Lab::ready();
    let told = lab.quiet(Event::Requested { lockspace: name("ls"), owner: 2 });
    assert!(matches!(&told[..], [Action::Outgoing { bitmap, .. }] if bitmap.contains(host(2))), "{told:?}");
    assert_eq!(lab.quiet(Event::Requested { lockspace: name("ls"), owner: HOST }), [], "never our own");
    assert_eq!(lab.quiet(Event::Requested { lockspace: name("gone"), owner: 2 }), []);
}

#[test]
fn a_graceful_request_runs_the_killpath_without_pid() {
    let (mut lab, ls) = Lab::ready();
    let program = KillpathProgram { path: b"/p".to_vec(), arguments: b"a".to_vec() };
    assert_eq!(lab.result(0, Command::Killpath { program, pid: true }), 0);
    let r = lab.hold(0, "r");
    let found = |force_mode| vec![Request { resource: r, lver: 8, force_mode }];
    let words = vec![b"/p".to_vec(), b"a".to_vec()];
    let run = Action::RunKillpath { conn: ConnId(0), pid: 100, request: Some(r), words };
    assert_eq!(lab.looked(ls, found(2)), std::slice::from_ref(&run));
    // It could not be ordered: if the request still stands it is ordered again.
    let lost = |conn| Event::KillpathLost { conn: ConnId(conn), request: Some(r) };
    assert_eq!(lab.quiet(lost(1)), [], "whom nobody has told");
    let looks = lab.quiet(lost(0));
    assert!(matches!(&looks[..], [Action::LookForRequests { leases, .. }] if leases[0].0 == r), "{looks:?}");
    assert_eq!(lab.quiet(lost(0)), [], "it is being looked for");
    assert_eq!(lab.looked(ls, found(2)), [run]);
    assert_eq!(lab.looked(ls, found(2)), [], "it was ordered, and only a bit stands");
    let kill = Action::Kill { conn: ConnId(0), pid: 100, signal: Signal::Kill };
    assert_eq!(lab.looked(ls, found(1)), [kill], "force asks nobody");
    // What has inherited its connection is the program's to stop, but no signal's.
    lab.pid_gone(0);
    assert_eq!(lab.looked(ls, found(1)), []);
    let words = vec![b"/p".to_vec(), b"a".to_vec()];
    assert_eq!(
        lab.looked(ls, vec![Request { resource: r, lver: 9, force_mode: 2 }]),
        [Action::RunKillpath { conn: ConnId(0), pid: 100, request: Some(r), words }]
    );
}

/// Seen in 3.8.5.
#[test]
fn requests_are_told_by_what_was_in_force_when_the_lease_was_acquired() {
    let kill = |conn: u64, signal| Action::Kill {
        conn: ConnId(conn),
        pid: if conn == 0 { 100 } else { 101 },
        signal,
    };
    let program = || KillpathProgram { path: b"/p".to_vec(), arguments: Vec::new() };
    let (mut lab, ls) = Lab::ready();
    let r = lab.hold(0, "r");
    let found = |resource, force_mode| vec![Request { resource, lver: 8, force_mode }];
    assert_eq!(lab.result(0, Command::Killpath { program: program(), pid: false }), 0);
    assert_eq!(lab.command(0, Command::Restrict { flags: 2 }), [replied(0, 0)]);
    assert_eq!(lab.looked(ls, found(r, 2)), [kill(0, Signal::Term)]);
    assert_eq!(lab.looked(ls, found(r, 1)), [kill(0, Signal::Kill)]);
    assert_eq!(lab.command(1, Command::Restrict { flags: 2 }), [replied(1, 0)]);
    let s = lab.hold(1, "s");
    assert_eq!(lab.command(1, Command::Restrict { flags: 0 }), [replied(1, 0)]);
    assert_eq!(lab.looked(ls, found(s, 1)), [kill(1, Signal::Term)]);
    // Who wants neither: one step each, though a process whose lockspace ends gets SIGKILL all the same.
    assert_eq!(lab.command(1, Command::Restrict { flags: 6 }), [replied(1, 0)]);
    let t = lab.hold(1, "t");
    assert_eq!(lab.looked(ls, found(t, 1)), [kill(1, Signal::Term)]);
    assert_eq!(lab.looked(ls, found(t, 2)), [kill(1, Signal::Kill)]);
}

#[test]
fn what_is_to_be_done_about_a_resource_is_shown_and_when_a_host_asked_for_a_look() {
    let (mut lab, ls) = Lab::ready();
    let flags = |lab: &Lab| {
        let all: Vec<u32> = lab.m.resources().map(|(id, resource)| lab.m.flags(id, resource)).collect();
        all
    };
    let last_request = |lab: &Lab| lab.m.lockspaces().next().unwrap().1.last_request(host(2));
    assert_eq!(lab.command(0, Command::Restrict { flags: 6 }), [replied(0, 0)]);
    let r = lab.hold(0, "r");
    assert_eq!((flags(&lab), last_request(&lab)), (vec![0x18], None));
    lab.tick();
    lab.quiet(Event::Noticed { ls, from: host(2), generation: 6, event: event(0) });
    assert_eq!((flags(&lab), last_request(&lab)), (vec![0x1a], Some(lab.now)));
    lab.looked(ls, vec![Request { resource: r, lver: 0, force_mode: 0 }]);
    assert_eq!(flags(&lab), [0x18]);
    lab.pid_gone(0);
    lab.close(0);
    assert_eq!(flags(&lab), [0x1c], "a release that nobody waits for");
}

#[test]
fn the_time_of_a_bit_may_be_configured() {
    let (mut lab, _) = Lab::ready();
    lab.m.settings.set_bitmap_secs = Some(3);
    assert_eq!(outcome(&lab.command(9, set(2, 17, SetEventFlags::default()))).0, 0);
    let mut told = Vec::new();
    for second in 1..=8 {
        let gone = |a: &Action| matches!(a, Action::Outgoing { bitmap, .. } if bitmap.hosts().count() == 0);
        if lab.tick().iter().any(gone) {
            told.push(second);
        }
    }
    assert_eq!(told, [4], "longer than 3 s ago");
}
