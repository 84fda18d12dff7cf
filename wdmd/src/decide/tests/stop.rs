//! What SIGTERM comes to (wdmd.md 9).

use super::*;

/// A host whose client has a reference, and whose daemon is told to stop after 2 s.
fn told_to_stop() -> Host {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, refcount(true));
    host.event(2, Event::Terminate);
    host
}

#[test]
fn stopping_waits_for_references_and_expiries_and_is_remembered() {
    let mut host = Host::new();
    host.event(1, Event::Terminate);
    host.tick(1);
    assert!(host.quit, "nobody there");

    let mut host = told_to_stop();
    (2..5).for_each(|second| host.tick(second));
    let deferred = host.log.iter().filter(|notice| matches!(notice, Notice::StopDeferred { .. })).count();
    assert_eq!((deferred, host.quit), (1, false));
    host.send(5, 2, live(5, 85));
    host.send(6, 2, refcount(false));
    assert!(!host.quit, "an expiry is pending");
    host.took();
    host.send(7, 2, live(0, 0));
    assert_eq!(host.took(), ["disarm"], "an idle connection does not keep it");
    assert!(host.quit);
}

#[test]
fn a_stop_is_forgotten_when_whoever_asked_has_given_up_waiting() {
    let forgotten = |host: &Host| host.log.contains(&Notice::StopForgotten);
    let mut host = told_to_stop();
    (2..30).for_each(|second| host.tick(second));
    // Asked again, as by a service manager, which then waits as long once more.
    host.event(30, Event::Terminate);
    (30..60).for_each(|second| host.tick(second));
    assert!(!forgotten(&host));
    // A tick may come late: what relied on the device until now counts.
    host.send(61, 2, refcount(false));
    assert!(forgotten(&host));
    host.end(62, 2);
    host.tick(63);
    assert!(!host.quit, "a lock manager may hold nothing for a moment");
    host.event(64, Event::Terminate);
    host.tick(64);
    assert!(host.quit);
}

#[test]
fn an_expiry_that_is_left_behind_keeps_the_daemon_however_far_ahead_it_is() {
    for expire in [85, u64::MAX] {
        let mut host = told_to_stop();
        host.send(3, 2, live(3, expire));
        host.end(4, 2);
        (4..40).for_each(|second| host.tick(second));
        assert!(!host.quit && !host.device.contains(&"disarm"), "{expire}");
        assert!(host.log.contains(&Notice::StopForgotten), "{expire}");
    }
}
