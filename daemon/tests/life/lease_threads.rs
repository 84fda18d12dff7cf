//! The threads that work on leases.

use super::support::served::served_over;
use super::support::{Daemon, Holder, Place, RESOURCE_OFFSET, within};
use sanlock_served::Trouble;
use sanlock_wire::flags::WriteFlags;
use sanlock_wire::{Name, StateRecord};
use std::fs::{self, File};
use std::thread::sleep;
use std::time::Duration;

/// For what happens within some seconds, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

/// Leases that another host has.
const TAKEN: u64 = 11;

/// How many threads of the daemon work on leases, or stand by for one that does.
fn threads(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/task", daemon.pid()))
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("sanlock-resourc"))
        .count()
}

/// Whether the last look at a host has seen nothing new.
fn is_silent(daemon: &Daemon, host_id: u32) -> bool {
    let number = |record: &StateRecord, key| {
        std::str::from_utf8(record.get(key).unwrap()).unwrap().parse::<u64>().unwrap()
    };
    let hosts = daemon.client().host_status(Name::truncated("LS")).unwrap();
    hosts
        .iter()
        .any(|record| record.data32 == host_id && number(record, "last_check") > number(record, "last_live"))
}

/// Acquires that wait for a silent owner: three threads have them all, and a free lease does not wait for them. Afterwards the threads go.
#[test]
fn there_are_no_more_than_wanted_and_they_end() {
    let place = Place::new();
    let offset = |n: u64| RESOURCE_OFFSET + (n << 20);
    File::options().write(true).open(place.leases()).unwrap().set_len(offset(TAKEN + 1)).unwrap();
    // The owner that is silent from some time on does not die while this takes.
    let settings = [("a", "max_worker_threads = 3\n"), ("b", "")];
    for (host, more) in settings {
        let text = format!("watchdog_fire_timeout = 200\n{more}");
        fs::write(place.run_dir(host).with_extension("conf"), text).unwrap();
    }
    let (ours, other) = (Daemon::start(&place.run_dir("a"), "a"), Daemon::start(&place.run_dir("b"), "b"));
    place.format(&ours);
    for n in 1..=TAKEN {
        ours.client().write_resource(&place.resource_at(offset(n)), 0, 0, WriteFlags::empty()).unwrap();
    }
    place.join(&ours, 1);
    place.join(&other, 2);
    let mut owners: Vec<Holder> =
        (1..=TAKEN).map(|n| Holder::of(&other, &place.leases(), offset(n))).collect();
    assert!(owners.iter_mut().all(|owner| owner.says() == "held"));
    other.crash();
    // Whoever was seen to renew a moment ago is no silent owner, and who wants its leases is refused at once.
    assert!(within(LIMIT, || is_silent(&ours, 2)), "a renewal is seen again and again");

    let waiting: Vec<Holder> = (1..=TAKEN).map(|n| Holder::of(&ours, &place.leases(), offset(n))).collect();
    assert!(within(LIMIT, || threads(&ours) > 4), "{} threads", threads(&ours));
    let mut free = Holder::start(&ours, &place.leases());
    assert_eq!(free.says(), "held");
    // Each of the three has a stand-by. Whoever was relieved, on a busy machine, ends when its call returns.
    assert!(within(LIMIT, || threads(&ours) <= 6), "{} threads", threads(&ours));
    drop((waiting, free));
    assert!(within(LIMIT, || threads(&ours) <= 2), "{} threads", threads(&ours));

    // The one that stays, and others, are there again when they are wanted.
    let again: Vec<Holder> = (0..=TAKEN).map(|n| Holder::of(&ours, &place.leases(), offset(n))).collect();
    assert!(within(LIMIT, || threads(&ours) > 4), "{} threads", threads(&ours));
    assert_eq!(again.into_iter().next().unwrap().says(), "held");
}

/// Reads that hang keep threads. Whoever tries again and again, after the other threads have gone, does not make them more.
#[test]
fn those_that_a_silent_disk_keeps_do_not_become_more() {
    const WAITED: Duration = Duration::from_secs(15);
    let place = Place::new();
    let ours = Daemon::start(&place.run_dir("a"), "a");
    let offset = |n: u64| RESOURCE_OFFSET + (n << 20);
    File::options().write(true).open(place.leases()).unwrap().set_len(offset(4)).unwrap();
    place.format(&ours);
    place.join(&ours, 1);
    let slow = Trouble::slow(Duration::from_secs(45));
    let Some(silent) = served_over(&place, &place.leases(), slow) else { return };
    let kept = [(); 2].map(|()| {
        let all: Vec<Holder> = (0..4).map(|n| Holder::of(&ours, silent.path(), offset(n))).collect();
        for one in all {
            let words = one.last_words();
            assert!(words.contains("-202"), "{words}");
        }
        sleep(WAITED);
        threads(&ours)
    });
    assert!(kept[1] <= kept[0], "{kept:?} threads");
    drop((ours, silent));
}
