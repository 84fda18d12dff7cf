//! Drivers that refuse, round, vanish and will not stop.

use super::pretended::{calls, device, with};
use super::*;
use nix::libc::{EBUSY, EINVAL, EIO, ENODEV, ENOTTY};
use sanlock_wdmd::decide::DeviceTimeout;

fn log() -> Log {
    Log::start(false).unwrap()
}

fn at(seconds: u64) -> Time {
    Time::from_seconds(seconds)
}

const RUNNING: Armed = Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };

#[test]
fn arming_sets_checks_and_pings_and_disarming_stops() {
    let mut device = device(None);
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "set 15", "ping"]);
    assert!(device.ping(at(1), &log()));
    assert!(device.disarm(at(2), &log()));
    assert_eq!(calls(), ["ping", "V", "close"]);
    // The driver kept the timeout.
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "ping"]);
}

#[test]
fn a_busy_device_is_not_armed() {
    with(|driver| driver.open_error = EBUSY);
    assert_eq!(device(None).arm(60, 15, &log()), Armed::Failed);
    assert_eq!(calls(), ["open"]);
}

#[test]
fn a_timeout_that_is_refused_rounded_up_or_ignored_is_undone() {
    for set_timeout in
        [|_| Err(EINVAL), |seconds| Ok(seconds + 1), |_| Ok(60), |_| Ok(1)] as [fn(u32) -> _; 4]
    {
        with(|driver| {
            driver.set_timeout = set_timeout;
            driver.timeout = 60;
        });
        assert_eq!(device(None).arm(60, 15, &log()), Armed::Failed);
        assert_eq!(calls(), ["open", "set 15", "V", "close"]);
    }
    with(|driver| driver.set_timeout = |seconds| Ok(seconds / 4 * 4));
    let rounded = Armed::Running { device_timeout: DeviceTimeout::exactly(12), can_disarm: true };
    assert_eq!(device(None).arm(60, 15, &log()), rounded);
}

#[test]
fn a_driver_that_every_close_stops_is_refused() {
    with(|driver| driver.support = driver.support.clone().without_magic_close());
    assert_eq!(device(None).arm(60, 15, &log()), Armed::Failed);
    assert_eq!(calls(), ["open", "V", "close"]);
}

#[test]
fn the_driver_that_fires_at_the_second_expiry_is_given_half() {
    with(|driver| driver.support = Support::complete("iTCO_wdt"));
    let running = Armed::Running { device_timeout: DeviceTimeout::between(7, 14), can_disarm: true };
    let mut device = device(None);
    assert_eq!(device.arm(60, 15, &log()), running);
    assert_eq!(calls(), ["open", "set 7", "ping"]);
    // The first expiry may reset the host: three pings before that, and for others what it does at the latest.
    let timing = Timing::new(60, DeviceTimeout::between(7, 14)).unwrap();
    assert!(timing.ping_every_ms() * 3 <= 7000 && timing.device_timeout() == 14);
    let factor = Factor::of("iTCO_wdt");
    assert_eq!(
        (factor.to_driver(15), factor.to_true(7), factor.is_odd()),
        (7, DeviceTimeout::between(7, 14), true)
    );
    for other in ["", "iTCO_wdt2", "Software Watchdog"] {
        assert_eq!(Factor::of(other).to_true(7), DeviceTimeout::exactly(7));
    }
}

/// Its hardware counts in steps of two seconds, which it rounds up to, and is a fifth off.
#[test]
fn the_driver_with_coarse_steps_is_asked_for_less() {
    with(|driver| driver.support = Support::complete("IB700 WDT"));
    let running = Armed::Running { device_timeout: DeviceTimeout::between(9, 15), can_disarm: true };
    let mut armed = device(None);
    assert_eq!(armed.arm(60, 15, &log()), running);
    assert_eq!(calls(), ["open", "set 12", "ping"]);
    let factor = Factor::of("IB700 WDT");
    for wanted in 1..=40 {
        let asked = factor.to_driver(wanted);
        assert!(asked % 2 == 0 && factor.to_true(asked).latest() <= wanted, "{wanted}");
    }
    // It takes 0, which is at once.
    for (fire, wanted) in [(5, 2), (4, 2), (3, 1)] {
        assert_eq!(device(None).arm(fire, wanted, &log()), Armed::Failed);
        assert_eq!(calls(), ["open", "V", "close"]);
    }
    assert_eq!(factor.to_true(13), factor.to_true(14), "rounded up");
    // Whoever asks for a number of the driver's own gets that.
    assert_eq!((factor.as_counted(), Factor::of("iTCO_wdt").as_counted()), (Factor::Plain, Factor::Twice));
}

/// A wdmd that was killed has left it so, and the next one does not find the marker: in another container, say.
#[test]
fn a_device_that_was_left_running_is_not_even_opened() {
    with(|driver| driver.ran = Some(true));
    assert!(device(None).look(&log()).is_none());
    assert_eq!(calls(), [""; 0]);
    assert!(left_running(&[]).contains("was killed"));
    assert!(left_running(&["1 (systemd)".to_owned()]).starts_with("runs, in use by process 1 (systemd)"));
    with(|driver| driver.ran = Some(false));
    assert!(device(None).look(&log()).is_some());
}

#[test]
fn a_device_without_a_way_out_that_was_left_running_is_not_chosen() {
    for was_named in [false, true] {
        with(|driver| driver.ran = Some(true));
        assert!(device(Some(true)).consider(was_named, &log()).is_none());
        for ran in [Some(false), None] {
            with(|driver| driver.ran = ran);
            assert!(device(Some(true)).consider(was_named, &log()).is_some());
        }
    }
    assert_eq!(calls(), [""; 0]);
}

/// Another wdmd has armed it since it was chosen, and was killed: the ping of an open would save a host that others count out.
#[test]
fn a_device_that_was_left_running_since_it_was_chosen_is_not_armed() {
    for no_way_out in [None, Some(false), Some(true)] {
        let mut device = device(no_way_out);
        let runs = |runs| with(|driver| (driver.ran, driver.runs) = (Some(runs), Some(runs)));
        with(|driver| driver.no_way_out = no_way_out);
        runs(true);
        assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
        assert_eq!(calls(), [""; 0]);
        // Whoever has it stops it.
        runs(false);
        let running = |seconds| Armed::Running {
            device_timeout: DeviceTimeout::exactly(seconds),
            can_disarm: no_way_out != Some(true),
        };
        assert_eq!(device.arm(60, 15, &log()), running(15));
        // It runs for this process now, which may set it anew.
        runs(true);
        assert_eq!(device.arm(30, 10, &log()), running(10));
        if no_way_out != Some(true) {
            runs(false);
            assert!(device.disarm(at(1), &log()));
            assert_eq!(device.arm(30, 10, &log()), running(10));
            assert!(device.disarm(at(2), &log()));
            calls();
            runs(true);
            assert_eq!(device.arm(30, 10, &log()), Armed::Failed);
            assert_eq!(calls(), [""; 0]);
        }
        with(|driver| driver.timeout = 60);
        drop(device);
        calls();
    }
}

#[test]
fn the_driver_that_is_there_counts_and_not_the_one_that_was_at_the_start() {
    let mut device = device(Some(false));
    device.described.identity = Some("Software Watchdog".into());
    with(|driver| (driver.support, driver.no_way_out) = (Support::complete("iTCO_wdt"), Some(true)));
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Running { device_timeout: DeviceTimeout::between(7, 14), can_disarm: false }
    );
    assert_eq!(device.identity(), "iTCO_wdt");
    assert_eq!(calls(), ["open", "set 7", "ping"]);
}

#[test]
fn what_sysfs_said_counts_as_long_as_it_says_nothing_else() {
    let mut device = device(Some(true));
    with(|driver| driver.no_way_out = None);
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: false }
    );
    with(|driver| driver.no_way_out = Some(false));
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
}

#[test]
fn a_device_that_vanishes_is_not_pinged() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    with(|driver| driver.keepalive_error = ENODEV);
    assert!(!device.ping(at(1), &log()));
    with(|driver| driver.keepalive_error = 0);
    assert!(device.ping(at(2), &log()));
}

#[test]
fn a_device_that_will_not_stop_stays_open() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    calls();
    with(|driver| driver.magic_error = EIO);
    assert!(!device.disarm(at(1), &log()));
    assert!(device.ping(at(2), &log()));
    assert_eq!(calls(), ["V", "ping"]);
    with(|driver| driver.magic_error = 0);
    assert!(device.disarm(at(3), &log()));
    assert_eq!(calls(), ["V", "close"]);

    with(|driver| {
        driver.magic_error = EIO;
        driver.set_timeout = |_| Err(EINVAL);
        driver.timeout = 60;
    });
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Stuck { device_timeout: DeviceTimeout::exactly(60), can_disarm: true }
    );
    assert_eq!(calls(), ["open", "set 15", "V"]);
}

#[test]
fn a_v_that_failed_is_taken_back_before_anybody_relies_on_the_device() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    with(|driver| driver.magic_error = EIO);
    assert!(!device.disarm(at(1), &log()));
    calls();
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["no V", "ping"]);
    assert!(!with(|driver| driver.magic), "the death of this process would stop the device");
    // Whether it was taken back is not known: nobody may rely on it.
    assert!(!device.disarm(at(2), &log()));
    with(|driver| driver.take_back_error = EIO);
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Stuck { device_timeout: DeviceTimeout::exactly(15), can_disarm: true }
    );
    with(|driver| driver.magic_error = 0);
    assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
    // A file that is opened anew has no `V`.
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
}

#[test]
fn without_a_way_out_the_file_stays_open_and_is_set_anew() {
    let mut device = device(Some(true));
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Running { device_timeout: DeviceTimeout::exactly(15), can_disarm: false }
    );
    calls();
    assert_eq!(
        device.arm(30, 10, &log()),
        Armed::Running { device_timeout: DeviceTimeout::exactly(10), can_disarm: false }
    );
    assert_eq!(calls(), ["no V", "set 10", "ping"]);
    with(|driver| driver.set_timeout = |_| Err(EINVAL));
    assert_eq!(
        device.arm(60, 15, &log()),
        Armed::Stuck { device_timeout: DeviceTimeout::exactly(10), can_disarm: false }
    );
    assert_eq!(calls(), ["no V", "set 15"]);
}

#[test]
fn a_pretimeout_is_switched_off_or_the_device_is_not_armed() {
    with(|driver| {
        driver.support = driver.support.clone().with_pretimeout();
        driver.pretimeout = Some(9);
    });
    let mut device = device(None);
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "set 15", "warn 0", "ping"]);
    assert_eq!(with(|driver| driver.pretimeout), Some(0));
    assert!(device.disarm(at(1), &log()));
    calls();
    // It is off.
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "ping"]);
    assert!(device.disarm(at(2), &log()));
    calls();
    // A driver that does not tell is told.
    with(|driver| driver.pretimeout = None);
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "warn 0", "ping"]);
    assert!(device.disarm(at(3), &log()));
    calls();
    for (pretimeout, set_pretimeout) in
        [(Some(9), (|_| Err(EINVAL)) as fn(u32) -> _), (Some(9), |_| Ok(9)), (None, |_| Err(EINVAL))]
    {
        with(|driver| (driver.pretimeout, driver.set_pretimeout) = (pretimeout, set_pretimeout));
        assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
        assert_eq!(calls(), ["open", "warn 0", "V", "close"]);
    }
}

#[test]
fn a_driver_that_tells_nothing_of_what_it_can_do_is_known_by_its_name() {
    with(|driver| {
        driver.support = Support::silent("IPMI");
        driver.pretimeout = Some(9);
    });
    let mut device = device(None);
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "set 15", "warn 0", "ping"]);
    assert!(device.disarm(at(1), &log()));
    calls();
    // What it says its timeout is may not be what the hardware was told.
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "set 15", "ping"]);
    assert!(device.disarm(at(2), &log()));
    // It knows of no pretimeout, and has not said that it does; or it keeps the one it has.
    with(|driver| (driver.pretimeout, driver.set_pretimeout) = (None, |_| Err(ENOTTY)));
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert!(device.disarm(at(3), &log()));
    with(|driver| (driver.pretimeout, driver.set_pretimeout) = (Some(9), |_| Err(EINVAL)));
    assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
    // Nobody else is believed to do what he does not say.
    with(|driver| driver.support = Support::silent("IPMI2"));
    assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
}

#[test]
fn a_device_that_runs_after_its_close_is_opened_again() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    with(|driver| driver.runs = Some(true));
    calls();
    assert!(!device.disarm(at(1), &log()));
    assert_eq!(calls(), ["V", "close", "open"]);
    assert!(device.ping(at(2), &log()));
    // It cannot be opened for a while.
    with(|driver| driver.open_error = EIO);
    assert!(!device.disarm(at(3), &log()));
    assert!(!device.ping(at(4), &log()));
    assert!(!device.disarm(at(5), &log()));
    assert_eq!(device.left_running(), Some(DeviceTimeout::exactly(15)));
    assert_eq!(calls(), ["ping", "V", "close", "open", "open", "open"]);
    with(|driver| driver.open_error = 0);
    assert!(device.ping(at(6), &log()));
    assert_eq!(calls(), ["open", "ping"]);
    with(|driver| driver.runs = Some(false));
    assert!(device.disarm(at(7), &log()));
    assert_eq!(calls(), ["V", "close"]);
    assert_eq!(device.left_running(), None);
    assert!(!device.ping(at(8), &log()));
    assert_eq!(calls(), [""; 0]);
}

#[test]
fn a_device_that_runs_after_its_close_is_not_forgotten_when_a_client_asks_for_it() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    with(|driver| (driver.runs, driver.open_error) = (Some(true), EIO));
    assert!(!device.disarm(at(1), &log()));
    let stuck = Armed::Stuck { device_timeout: DeviceTimeout::exactly(15), can_disarm: true };
    assert_eq!(device.arm(60, 15, &log()), stuck);
    assert_eq!(device.arm(60, 15, &log()), stuck);
    calls();
    // It is opened again as soon as that can be done, and may be told to stop still.
    with(|driver| driver.open_error = 0);
    assert_eq!(device.arm(60, 15, &log()), RUNNING);
    assert_eq!(calls(), ["open", "no V", "ping"]);
    // One that somebody else has opened meanwhile is his.
    with(|driver| driver.open_error = EIO);
    assert!(!device.disarm(at(2), &log()));
    with(|driver| driver.open_error = EBUSY);
    assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
    assert_eq!(device.left_running(), None);
}

#[test]
fn a_device_that_somebody_else_has_started_after_its_close_is_his() {
    let mut device = device(None);
    device.arm(60, 15, &log());
    with(|driver| (driver.runs, driver.open_error) = (Some(true), EBUSY));
    assert!(device.disarm(at(1), &log()));
    assert_eq!(device.left_running(), None);
    calls();
    assert!(!device.ping(at(2), &log()));
    assert!(device.disarm(at(3), &log()));
    // Also when nobody has it open any more.
    with(|driver| driver.open_error = 0);
    assert_eq!(device.arm(60, 15, &log()), Armed::Failed);
    assert_eq!(calls(), [""; 0]);
}

#[test]
fn a_device_without_a_way_out_since_it_was_armed_stays_open() {
    let mut device = device(Some(false));
    device.arm(60, 15, &log());
    calls();
    with(|driver| driver.no_way_out = Some(true));
    assert!(!device.disarm(at(1), &log()));
    assert!(device.ping(at(2), &log()));
    assert_eq!(calls(), ["ping"]);
}

#[test]
fn a_named_device_is_the_only_candidate() {
    assert_eq!(candidates(Some(OsStr::new("/dev/x"))).unwrap(), [Path::new("/dev/x")]);
    assert_eq!(candidates(None).unwrap().len(), 3);
    assert!(candidates(Some(OsStr::new("no such"))).is_err());
}

#[test]
fn a_look_leaves_the_device_stopped_or_open() {
    assert_eq!(device(None).look(&log()).unwrap().left_running(), None);
    assert_eq!(calls(), ["open", "V", "close"]);
    with(|driver| driver.magic_error = EIO);
    let mut stuck = device(None).look(&log()).unwrap();
    assert_eq!(stuck.left_running(), Some(DeviceTimeout::exactly(60)));
    assert_eq!(calls(), ["open", "V"]);
    // It can be armed as it is, and stopped later.
    assert_eq!(stuck.arm(60, 15, &log()), RUNNING);
    with(|driver| driver.magic_error = 0);
    assert!(stuck.disarm(at(1), &log()));
    assert_eq!(calls(), ["no V", "set 15", "ping", "V", "close"]);
    // One that cannot be used is kept as well, and passed over if it stops.
    with(|driver| driver.support = driver.support.clone().without_magic_close());
    assert!(device(None).look(&log()).is_none());
    assert_eq!(calls(), ["open", "V", "close"]);
    with(|driver| driver.magic_error = EIO);
    let unusable = device(None).look(&log()).unwrap();
    assert_eq!(unusable.left_running(), Some(DeviceTimeout::exactly(15)));
    assert_eq!(calls(), ["open", "V"]);
}

#[test]
fn what_is_no_watchdog_is_not_chosen() {
    assert!(Device::choose(Some(OsStr::new("/dev/null")), &log()).is_none());
    // Not even if it does not take what would stop a watchdog.
    assert!(Device::choose(Some(OsStr::new("/dev/full")), &log()).is_none());
    assert!(Device::choose(Some(OsStr::new("/no/such/device")), &log()).is_none());
}
