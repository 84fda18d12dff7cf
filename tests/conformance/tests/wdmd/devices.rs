//! Which device is taken, and drivers that refuse, round, fail or cannot be disarmed (wdmd.md 4).

use nix::sys::signal::Signal;
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::{Machine, Program, Table, bounded};

/// A machine with one device `watchdog0` (and no `watchdog`), whose driver has these faults.
fn faulty(program: Program, faults: &str) -> Machine {
    let machine = Machine::without_device(program);
    machine.devices().add("watchdog0");
    machine.devices().set_faults("watchdog0", faults);
    machine
}

/// The device that is running once a client has had it armed.
fn armed_device(machine: &Machine, options: &[&str]) -> Option<String> {
    let wdmd = machine.start(options);
    let _client = wdmd.armed();
    let names = ["watchdog0", "watchdog1", "watchdog"];
    let running = |name: &&&str| machine.devices().reckoning(name, None).fires.is_some();
    names.iter().find(running).map(|name| (*name).to_owned())
}

#[test]
fn the_first_usable_device_is_taken() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut table = Table::default();
    for (case, devices, faults, options, expected) in [
        ("both", vec!["watchdog0", "watchdog1"], "", vec![], "watchdog0"),
        ("only the second", vec!["watchdog1"], "", vec![], "watchdog1"),
        ("only the old name", vec!["watchdog"], "", vec![], "watchdog"),
        ("the first is busy", vec!["watchdog0", "watchdog1"], "open 16\n", vec![], "watchdog1"),
        ("the first is broken", vec!["watchdog0", "watchdog1"], "gettimeout 5\n", vec![], "watchdog1"),
        ("told to", vec!["watchdog0", "watchdog1"], "", vec!["-w", "/dev/watchdog1"], "watchdog1"),
    ] {
        let machine = Machine::without_device(program);
        for device in &devices {
            machine.devices().add(device);
        }
        machine.devices().set_faults(devices[0], faults);
        table.expect(case, armed_device(&machine, &options).as_deref(), Some(expected));
    }
}

#[test]
fn a_device_that_was_asked_for_by_name_and_is_not_there_is_refused_by_ours() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    let options = ["-w", "/dev/watchdog1"];
    if program == Program::Reference {
        let taken = armed_device(&machine, &options);
        assert_eq!(taken.as_deref(), Some("watchdog0"), "defect 13: only a preference");
        return;
    }
    let refused = machine.start_unready(&options).finish();
    assert_eq!(refused.code, 255, "{refused}");
    assert!(refused.stderr.contains("/dev/watchdog1"), "{refused}");
    assert!(machine.devices().calls().is_empty(), "no other device was touched");
}

#[test]
fn the_device_is_opened_so_that_no_child_inherits_it() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    assert_eq!(armed_device(&machine, &[]).as_deref(), Some("watchdog0"));
    let events = machine.devices().events();
    assert!(events.iter().filter(|event| event.call == "open").all(|event| event.argument == "cloexec"));
}

#[test]
fn a_driver_that_does_not_take_the_timeout_is_refused_and_left_disarmed() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut table = Table::default();
    // The original asks for 60 at its start; ours for 15 when a client asks for 60.
    for (case, faults, reference, ours) in [
        ("error", "settimeout 22\n", false, false),
        ("limit of 30", "max 30\n", false, true),
        ("limit of 10", "max 10\n", false, false),
        ("takes more", "takes 61\n", false, false),
        ("takes a little less", "takes 14\n", false, true),
        ("takes next to nothing", "takes 1\n", false, false),
    ] {
        let machine = faulty(program, faults);
        let why = "the device is programmed to a quarter of the fire timeout, and may round down";
        let expected = program.differs(reference, ours, why);
        let taken = match program {
            Program::Reference => {
                let refused = machine.start_unready(&[]).finish();
                table.expect(case, refused.code, 255);
                let log = refused.stderr;
                table.expect(case, log.contains("/dev/watchdog0 failed to set "), true);
                false
            }
            Program::Ours => {
                let wdmd = machine.start(&[]);
                let taken = wdmd.connect().open_watchdog(60);
                if taken != 0 {
                    table.expect(&format!("{case}: reply"), taken, 60);
                    continue;
                }
                wdmd.wait_for_log("open_watchdog ");
                false
            }
        };
        table.expect(case, taken, expected);
        let fires = machine.devices().reckoning("watchdog0", None).fires;
        table.expect(&format!("{case}: disarmed"), fires, None);
        let open = machine.devices().calls();
        table.expect(&format!("{case}: closed"), open.last().cloned(), Some("close".to_owned()));
    }
}

#[test]
fn a_busy_device_is_refused_until_it_is_free() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It takes its device at the start: the_first_usable_device_is_taken.
    }
    let machine = faulty(program, "");
    let wdmd = machine.start(&[]);
    machine.devices().set_faults("watchdog0", "open 16\n");
    let mut client = wdmd.connect();
    assert_eq!(client.open_watchdog(30), 0);
    wdmd.wait_for_log("open /dev/watchdog0 error 16");
    machine.devices().set_faults("watchdog0", "");
    assert_eq!(client.open_watchdog(30), 30);
}

#[test]
fn a_driver_that_cannot_do_what_is_needed_is_refused_by_ours() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let why = "defect 9: the driver's abilities are not looked at";
    let mut table = Table::default();
    for (case, options) in
        [("no magic close", 0x8080), ("no settimeout", 0x8100), ("no keepalive", 0x0180), ("nothing", 0)]
    {
        let machine = faulty(program, &format!("options {options}\n"));
        let mut wdmd = machine.start_unready(&[]);
        let ready = program.differs(" armed with ", "wdmd started", "armed at its start");
        bounded::wait_until("wdmd to be ready or to end", SOON, || {
            wdmd.ended() || wdmd.log().contains(ready)
        });
        let usable = match program {
            Program::Reference => !wdmd.ended(),
            Program::Ours => !wdmd.ended() && wdmd.connect().open_watchdog(60) != 0,
        };
        table.expect(case, usable, program.differs(true, false, why));
        if !usable {
            wdmd.wait_for_log("/dev/watchdog0");
        }
    }
}

#[test]
fn the_driver_of_ipmi_is_used_although_it_tells_of_nothing_it_can_do() {
    let Some(program) = Program::wdmd_under_test() else { return };
    // It knows only the old name.
    let of_ipmi = || {
        let machine = Machine::without_device(program);
        machine.devices().add("watchdog");
        machine.devices().write("watchdog", "identity", "IPMI\n");
        machine.devices().set_faults("watchdog", "options 0\n");
        machine
    };
    let machine = of_ipmi();
    assert_eq!(armed_device(&machine, &[]).as_deref(), Some("watchdog"));
    let probe = of_ipmi().run(&["-p"]);
    assert_eq!((probe.code, probe.stdout.as_str()), (0, "/dev/watchdog\n"), "{probe}");

    let machine = of_ipmi();
    machine.devices().set_ipmi("nowayout", "Y\n");
    let probe = machine.run(&["-p"]);
    let why = "defect 9: probing arms it for good";
    assert_eq!(probe.code, program.differs(0, 1, why), "{probe}");
    assert_eq!(machine.devices().calls().is_empty(), program.differs(false, true, why), "{probe}");
}

/// It takes every ping then, and the timeout, and never fires.
#[test]
fn the_driver_of_ipmi_that_was_told_to_do_nothing_protects_nobody() {
    let Some(program) = Program::wdmd_under_test() else { return };
    for (action, works) in [("reset\n", true), ("none\n", false)] {
        let machine = Machine::without_device(program);
        machine.devices().add("watchdog");
        machine.devices().write("watchdog", "identity", "IPMI\n");
        machine.devices().set_faults("watchdog", "options 0\n");
        machine.devices().set_ipmi("action", action);
        let why = "relies on a device that was told to do nothing";
        let probe = machine.run(&["-p"]);
        assert_eq!(probe.code, if works { 0 } else { program.differs(0, 1, why) }, "{probe}");
        // The daemon does not start without a device.
        if works {
            assert!(armed_device(&machine, &[]).is_some());
        }
    }
}

/// A wdmd that was killed has left it so, and the marker is not there.
#[test]
fn a_device_that_runs_is_not_opened_for_a_look() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::without_device(program);
    machine.devices().add("watchdog0");
    machine.devices().write("watchdog0", "state", "active\n");
    let probe = machine.run(&["-p"]);
    let why = "stops the device, which may be about to reset this host";
    assert_eq!(probe.code, program.differs(0, 1, why), "{probe}");
    assert_eq!(machine.devices().calls().is_empty(), program.differs(false, true, why), "{probe}");
}

/// By a wdmd with a `/dev/shm` of its own, as in a pod, before this one was started or since.
#[test]
fn a_device_that_another_wdmd_left_running_is_neither_chosen_nor_armed_by_ours() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // a_device_that_runs_is_not_opened_for_a_look
    }
    for nowayout in ["0\n", "1\n"] {
        let machine = Machine::without_device(program);
        let devices = machine.devices();
        devices.add("watchdog0");
        devices.write("watchdog0", "nowayout", nowayout);
        devices.write("watchdog0", "state", "active\n");
        let refused = machine.start_unready(&[]).finish();
        assert_eq!(refused.code, 255, "{refused}");
        assert!(refused.stderr.contains("it is about to reset this host"), "{refused}");
        assert!(devices.calls().is_empty(), "{refused}");

        devices.write("watchdog0", "state", "inactive\n");
        let wdmd = machine.start(&[]);
        let looked = devices.calls();
        devices.write("watchdog0", "state", "active\n");
        let mut client = wdmd.connect();
        assert_eq!(client.open_watchdog(60), 0);
        wdmd.wait_for_log("it is about to reset this host");
        assert_eq!(devices.calls(), looked);
        // Whoever had it open has stopped it.
        devices.write("watchdog0", "state", "inactive\n");
        assert_eq!(client.open_watchdog(60), 60);
    }
}

/// Where `watchdog0` is there it has the old name, too: `ipmi_watchdog`, loaded later, got no device, and neither driver has hardware in sysfs.
#[test]
fn a_first_device_that_runs_is_not_opened_by_its_old_name_beside_the_driver_of_ipmi() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    machine.devices().write("watchdog0", "state", "active\n");
    let misc = machine.devices().dir().join("misc");
    std::fs::create_dir(&misc).unwrap_or_else(|error| panic!("{}: {error}", misc.display()));
    machine.devices().set_ipmi("nowayout", "N\n");
    let probe = machine.run(&["-p", "-w", "/dev/watchdog"]);
    let why = "stops the device, which may be about to reset this host";
    assert_eq!(probe.code, program.differs(0, 1, why), "{probe}");
    assert_eq!(machine.devices().calls().is_empty(), program.differs(false, true, why), "{probe}");
}

#[test]
fn the_old_name_of_a_driver_outside_the_core_says_nothing_of_the_first_device() {
    let Some(program) = Program::wdmd_under_test() else { return };
    // `watchdog0` is iTCO, and runs for somebody else.
    let machine = Machine::without_device(program);
    machine.devices().add("watchdog0");
    for (file, text) in [("identity", "iTCO_wdt\n"), ("state", "active\n")] {
        machine.devices().write("watchdog0", file, text);
    }
    machine.devices().set_faults("watchdog0", "open 16\n");
    machine.devices().set_parent("watchdog0", "pci0");
    machine.devices().add("watchdog");
    machine.devices().write("watchdog", "identity", "IB700 WDT\n");
    machine.devices().set_parent_of_misc("isa0");
    let mut wdmd = machine.start(&[]);
    let (client, timing) = wdmd.armed();
    let why = "its hardware rounds up to an even number of seconds, and is a fifth off";
    assert_eq!(machine.devices().timeout("watchdog"), program.differs(timing.device, 12, why));
    drop(client);
    if program == Program::Ours {
        bounded::wait_until("the device to be disarmed", SOON, || {
            machine.devices().reckoning("watchdog", None).fires.is_none()
        });
        assert!(!wdmd.log().contains("still runs"));
    }
    wdmd.signal(Signal::SIGTERM);
    assert_eq!(wdmd.finish().code, 0);
    assert_eq!(machine.devices().reckoning("watchdog", None).fires, None);

    // With the same parent it is `watchdog0`, and says whether it can be stopped.
    machine.devices().write("watchdog0", "nowayout", "1\n");
    assert_eq!(machine.run(&["-p", "-w", "/dev/watchdog"]).code, 0);
    machine.devices().set_parent_of_misc("pci0");
    let probe = machine.run(&["-p", "-w", "/dev/watchdog"]);
    let why = "defect 9: probing arms it for good";
    assert_eq!(probe.code, program.differs(0, 1, why), "{probe}");
}

#[test]
fn a_device_that_cannot_be_disarmed_is_not_opened_to_look_at_it() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let why = "defect 9: probing arms it for good";
    for name in ["watchdog0", "watchdog"] {
        let machine = Machine::new(program);
        machine.devices().write("watchdog0", "nowayout", "1\n");
        let device = format!("/dev/{name}");
        let probe = machine.run(&["-p", "-w", &device]);
        assert_eq!(probe.code, program.differs(0, 1, why), "{probe}");
        let touched = !machine.devices().calls().is_empty();
        assert_eq!(touched, program.differs(true, false, why), "{probe}");
        if program == Program::Ours {
            assert!(probe.stderr.contains("nowayout"), "{probe}");
        }
    }
}

#[test]
fn a_device_that_cannot_be_disarmed_is_pinged_as_long_as_all_is_well() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let machine = Machine::new(program);
    machine.devices().write("watchdog0", "nowayout", "1\n");
    let wdmd = machine.start(&[]);
    let (client, _) = wdmd.armed();
    drop(client);
    let pings = machine.devices().reckoning("watchdog0", None).pings.len();
    bounded::wait_until("pings without clients", SOON, || {
        machine.devices().reckoning("watchdog0", None).pings.len() > pings + 1
    });
    let closed = machine.devices().calls().contains(&"close".to_owned());
    assert!(!closed, "the device stays open");
}

#[test]
fn a_timer_that_needs_two_expiries_is_set_to_half() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut table = Table::default();
    for (device, fire, expected) in [("watchdog0", 60, 7), ("watchdog0", 30, 5), ("watchdog", 60, 7)] {
        let case = format!("{device} {fire}");
        let machine = Machine::new(program);
        machine.devices().write("watchdog0", "identity", "iTCO_wdt\n");
        let path = format!("/dev/{device}");
        let wdmd = machine.start(&["-w", &path]);
        if program == Program::Ours {
            table.expect(&case, wdmd.connect().open_watchdog(fire), fire);
            let line = wdmd.dump().lines().next().unwrap().to_owned();
            table.expect(&case, line.ends_with("identity \"iTCO_wdt\""), true);
        }
        let set = machine.devices().timeout("watchdog0");
        let why = "defect 10: the timer resets at its second expiry, which 3.8.5 does not know";
        table.expect(&case, set, program.differs(60, expected, why));
    }
}

#[test]
fn a_device_that_will_not_be_disarmed_at_the_start_is_kept_and_pinged_by_ours() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It disarms nothing at its start.
    }
    let machine = Machine::without_device(program);
    machine.devices().add("watchdog0");
    machine.devices().add("watchdog1");
    machine.devices().write("watchdog0", "timeout", "3\n");
    machine.devices().set_faults("watchdog0", "write 5\n");
    let mut wdmd = machine.start(&[]);
    wdmd.wait_for_log("/dev/watchdog0 disarm write error 5");
    bounded::wait_until("pings without clients", SOON, || {
        machine.devices().calls().iter().filter(|call| *call == "keepalive").count() >= 3
    });
    let events = machine.devices().events();
    assert!(events.iter().all(|event| event.device == "watchdog0"), "no other device is touched");
    assert!(events.iter().all(|event| event.call != "close"), "its file stays open");
    // It serves clients, unless it may stop when its file is closed, and ends when it has stopped its device.
    machine.devices().set_faults("watchdog0", "magic 5\n");
    let mut client = wdmd.connect();
    assert_eq!(client.open_watchdog(60), 60);
    drop(client);
    wdmd.signal(Signal::SIGTERM);
    bounded::wait_until("disarming to be tried again", SOON, || {
        let calls = machine.devices().calls();
        calls
            .iter()
            .rev()
            .take_while(|call| *call != "keepalive")
            .filter(|call| *call == "write V -5")
            .count()
            >= 2
    });
    assert!(!wdmd.ended() && machine.marker().exists());
    machine.devices().set_faults("watchdog0", "");
    assert_eq!(wdmd.finish().code, 0);
    assert_eq!(machine.devices().reckoning("watchdog0", None).fires, None);
    assert!(!machine.marker().exists());
}

#[test]
fn a_device_that_would_not_be_disarmed_fires_for_the_next_client_although_the_daemon_is_killed() {
    let Some(program) = Program::wdmd_under_test() else { return };
    if program == Program::Reference {
        return; // It disarms only when it ends.
    }
    let machine = faulty(program, "magic 5\n");
    let mut wdmd = machine.start(&[]);
    let (first, _) = wdmd.armed();
    drop(first);
    bounded::wait_until("a disarming that fails", SOON, || {
        machine.devices().calls().last().is_some_and(|call| call == "write V -5")
    });
    let (_second, _) = wdmd.armed();
    wdmd.crash();
    let fires = machine.devices().reckoning("watchdog0", wdmd.died()).fires;
    assert!(fires.is_some(), "the V that failed stopped the device: {:?}", machine.devices().calls());

    // A driver that does not take it back either serves nobody.
    let machine = faulty(program, "write 5\n");
    let wdmd = machine.start(&[]);
    assert_eq!(wdmd.connect().open_watchdog(60), 0);
    wdmd.wait_for_log("/dev/watchdog0 write error 5");
}
