//! Devices that should have fired and have not.

use super::*;

#[test]
fn a_device_that_takes_no_pings_and_does_not_fire_protects_nobody() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.connect(1, 3);
    assert_eq!(host.open(1, 2, 60), 60);
    host.send(1, 2, live(1, 81));
    host.ping_works = false;
    for second in 2..=25 {
        host.tick(second);
    }
    assert_eq!(host.open(25, 3, 60), 60, "it may fire yet");
    for second in 26..=30 {
        host.tick(second);
    }
    assert!(host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })), "{:?}", host.lines());
    assert_eq!(host.open(30, 3, 60), 0);
    assert_eq!(host.status(30, 3).fire_timeout, 0);
    assert!(
        host.lines().iter().any(|line| line.starts_with("open_watchdog 60 refused: the watchdog device"))
    );
    // That it takes pings again proves nothing.
    host.ping_works = true;
    host.tick(31);
    assert_eq!(host.open(31, 3, 60), 0);
    host.send(32, 2, live(0, 0));
    host.end(32, 2);
    host.end(32, 3);
    host.connect(40, 4);
    assert_eq!(host.open(40, 4, 60), 0);
}

#[test]
fn a_device_that_takes_no_pings_is_found_out_although_clients_ask_for_it() {
    let mut host = Host::new();
    host.connect(1, 2);
    assert_eq!(host.open(1, 2, 60), 60);
    (host.ping_works, host.disarm_works) = (false, false);
    host.end(2, 2);
    host.result = Armed::Stuck { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
    let mut asked = 0;
    for second in 3..=40 {
        // It is told to stop, then pinged.
        host.tick(second);
        host.tick(second);
        if second % 5 == 0 {
            host.connect(second, 3);
            assert_eq!(host.open(second, 3, 60), 0);
            assert_eq!(host.status(second, 3).last_keepalive, 1, "it was not pinged");
            host.end(second, 3);
            asked += 1;
        }
    }
    assert_eq!(asked, 8);
    assert!(host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })), "{:?}", host.lines());
    // As long as it runs the daemon stays.
    host.event(41, Event::Terminate);
    host.tick(42);
    assert!(!host.quit);
}

#[test]
fn a_device_that_has_not_fired_for_an_expiry_protects_nobody_later() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    for second in 2..=140 {
        host.tick(second);
    }
    assert!(host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })));
    host.send(140, 2, live(140, 220));
    host.tick(141);
    host.connect(141, 3);
    assert_eq!(host.open(141, 3, 60), 0);
}

/// SIGTERM would wait for ever, and what is left behind by SIGKILL keeps the next daemon from starting.
#[test]
fn where_wdmd_cannot_be_restarted_a_reboot_is_asked_for() {
    for (dies, can_disarm, advice) in [
        (true, true, "client ci 2 has ended with an expiry, so wdmd cannot be restarted: reboot this host"),
        (false, false, "it cannot be stopped (nowayout), so wdmd cannot be restarted: reboot this host"),
        (false, true, "restart wdmd when it works"),
    ] {
        let mut host = Host::new();
        host.result = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm };
        host.connect(1, 2);
        host.open(1, 2, 60);
        host.send(1, 2, live(1, 81));
        if dies {
            host.end(2, 2);
        }
        (2..=140).for_each(|second| host.tick(second));
        host.connect(141, 3);
        assert_eq!(host.open(141, 3, 60), 0);
        let line = format!(
            "open_watchdog 60 refused: the watchdog device has not reset this host when it should have; {advice}"
        );
        assert!(host.lines().contains(&line), "{:?}", host.lines());
        host.event(141, Event::Terminate);
        if !dies {
            host.send(141, 2, live(0, 0));
        }
        host.end(142, 3);
        assert_eq!(host.quit, !dies && can_disarm, "{advice}");
    }
}

#[test]
fn a_pause_of_this_machine_says_nothing_about_its_device() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.connect(1, 3);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    host.took();
    // It stood still, and its device with it.
    host.tick(500);
    host.tick(501);
    assert!(!host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })));
    host.send(502, 2, live(502, 582));
    assert_eq!(host.open(502, 3, 60), 60);
    host.tick(503);
    assert_eq!(host.took(), ["ping"]);
}

/// It was being starved when the machine stood still.
#[test]
fn a_pause_while_the_device_gets_nothing_says_nothing_either() {
    let mut host = Host::new();
    host.connect(1, 2);
    host.connect(1, 3);
    host.open(1, 2, 60);
    host.send(1, 2, live(1, 81));
    (2..=112).for_each(|second| host.tick(second));
    for second in [172, 173] {
        host.tick(second);
    }
    assert!(!host.log.iter().any(|notice| matches!(notice, Notice::DidNotFire { .. })), "{:?}", host.lines());
    host.send(174, 2, live(174, 254));
    assert_eq!(host.open(174, 3, 60), 60);
}

/// The driver of a board whose controller is being reset answers late, and the device has lost its time meanwhile.
#[test]
fn a_ping_that_takes_longer_than_the_device_waits_shows_that_it_does_not_fire() {
    for (ended, fired) in [(25, true), (26, false)] {
        let mut host = Host::new();
        host.connect(1, 2);
        host.connect(1, 3);
        assert_eq!(host.open(1, 2, 60), 60);
        host.send(1, 2, live(1, 81));
        host.took();
        assert_eq!(host.machine.handle(Time::from_seconds(6), Event::Tick), [Action::Ping]);
        host.event(ended, Event::Pinged(true));
        host.tick(ended);
        assert_eq!(host.open(ended, 3, 60), if fired { 60 } else { 0 }, "{ended}");
        let told = host
            .log
            .iter()
            .any(|notice| matches!(notice, Notice::DidNotFire { seconds } if *seconds == ended as i64 - 1));
        assert_eq!(told, !fired, "{:?}", host.lines());
    }
}
