//! A machine that sleeps loses its leases as if it had been silent for as long (decision 23). The original's clock stands still with the
//! machine, so there is nothing to compare.

use std::time::Duration;

use sanlock_conformance::sleep::since_boot;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::watchdog::{now, now_seconds};
use sanlock_conformance::wdmd::{field, mount_namespaces};
use sanlock_conformance::{Holder, Host, Machine, Program, Sleep, Storage, Wdmd, bounded};

const SOON: Duration = Duration::from_secs(60);
/// Io timeout; 6 of them are more than the interval of wdmd (wdmd.md 11.7).
const IO: &str = "3";
/// A sleep that leases survive with it: they fail after 24 s.
const NAP: u64 = 8;
/// One that they survive if they are renewed at once, and not if the rest of the interval of 6 s is waited for.
const LONG_NAP: u64 = 19;
/// Other hosts would have waited for 84 s.
const NIGHT: u64 = 30_000;
const SIGKILL: i32 = 128 + 9;
/// A program that cannot be stopped gently.
const STUBBORN: [&str; 3] = ["/bin/sh", "-c", "trap '' TERM; exec sleep 1000"];

fn join(host: &Host, storage: &Storage) {
    let _ = host.client(&["client", "init", "-s", &storage.lockspace_arg(0), "-o", IO]).success();
    for number in 1..=2 {
        let _ = host.client(&["client", "init", "-r", &storage.resource_arg(number)]).success();
    }
    let add = ["client", "add_lockspace", "-s", &storage.lockspace_arg(1), "-o", IO];
    let _ = host.client_within(SOON, &add).success();
}

fn renewed(host: &Host) -> u64 {
    let status = host.client(&["client", "status", "-D"]).success();
    let line = status.stdout.lines().find(|line| line.contains("renewal_last_success=")).map(str::to_owned);
    let value = line.as_deref().and_then(|line| line.split("renewal_last_success=").nth(1));
    value.and_then(|value| value.trim().parse().ok()).expect("renewal_last_success in the status")
}

#[test]
fn users_are_stopped_at_once_when_the_machine_wakes_up_too_late_and_not_after_a_nap() {
    let Some(program) = Program::ours_under_test("does not know that it slept") else { return };
    let sleep = Sleep::none();
    let storage = Storage::file();
    let host = Host::start_sleepy(program, "host1", &sleep, None);
    join(&host, &storage);
    let mut gentle = Holder::start(&host, &[&storage.resource_arg(1)]);
    let mut stubborn = Holder::start_program(&host, &[&storage.resource_arg(2)], &STUBBORN);

    sleep.set(NAP);
    bounded::wait_until("a renewal after the nap", SOON, || renewed(&host) + 3 >= since_boot(NAP));
    assert!(!gentle.ended() && !stubborn.ended(), "{NAP} s of sleep are no failure");

    assert!(renewed(&host) >= since_boot(0), "times count the sleep");

    let last = renewed(&host);
    bounded::wait_until("a renewal", SOON, || renewed(&host) > last);
    sleep.set(NAP + LONG_NAP);
    bounded::wait_until("a renewal after the long nap", SOON, || {
        renewed(&host) + 3 >= since_boot(NAP + LONG_NAP)
    });
    assert!(!gentle.ended() && !stubborn.ended(), "{LONG_NAP} s of sleep are no failure");

    sleep.set(NIGHT);
    // The time for a gentle end is over, too.
    for holder in [&mut gentle, &mut stubborn] {
        let end = holder.finish(SOON);
        assert_eq!(end.code, SIGKILL, "{end}");
    }
    bounded::wait_until("the lockspace to be gone", SOON, || {
        host.connect().inq_lockspace(&storage.lockspace(1), 0) == -2
    });
    let slept = format!("this machine slept for {} s", NIGHT - NAP - LONG_NAP);
    assert!(host.log().contains(&slept), "the log says so");
}

/// The line of the lockspace in wdmd's dump.
fn expiry(wdmd: &Wdmd<'_>) -> u64 {
    let slot = wdmd.slots(&format!("sanlock_{LOCKSPACE}:1")).into_iter().next();
    slot.map_or(0, |slot| field(&slot, "expire").parse().expect("a number"))
}

#[test]
fn wdmd_hears_of_the_expiry_that_has_passed_and_resets_the_host() {
    let Some(program) = Program::ours_under_test("does not know that it slept") else { return };
    if !Program::both_available() || !mount_namespaces() {
        return;
    }
    let part = |wdmd_program: Program| {
        let case = move || {
            let sleep = Sleep::none();
            sleep.set(NIGHT);
            let machine = Machine::new(wdmd_program);
            let wdmd = machine.start(&[]);
            let storage = Storage::file();
            let host = Host::start_sleepy(program, "host1", &sleep, Some(&machine));
            join(&host, &storage);
            let mut holder = Holder::start(&host, &[&storage.resource_arg(1)]);
            let first = expiry(&wdmd);
            assert!((now_seconds()..now_seconds() + 25).contains(&first), "{first}: the clock of wdmd");
            // Something uses the lockspace that nobody can stop.
            let used = ["client", "set_config", "-s", &storage.lockspace_arg(1), "-u", "1"];
            let _ = host.client(&used).success();

            sleep.set(NIGHT + NIGHT);
            let end = holder.finish(SOON);
            assert_eq!(end.code, SIGKILL, "{end}");
            let passed = || (1..now_seconds()).contains(&expiry(&wdmd));
            bounded::wait_until("wdmd to be told", SOON, passed);
            let over = || {
                now() > machine.devices().reckoning("watchdog0", None).last_ping() + Duration::from_secs(12)
            };
            bounded::wait_until("the pings to end", SOON, over);
        };
        (format!("{} wdmd", wdmd_program.word()), Box::new(case) as Box<dyn FnOnce() + Send>)
    };
    bounded::side_by_side(vec![part(Program::Reference), part(Program::Ours)]);
}
