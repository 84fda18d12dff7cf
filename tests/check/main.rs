//! `sanlock check`: silent about a good set-up, and what it says about each broken one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod clock;
mod storage;
mod system;
mod table;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanlock_manual::json::is_documented;
use system::{FINE, MOUNTS, PROBLEMS, STAT, System, UNUSABLE, WARNINGS, text, told};

#[test]
fn a_good_set_up_gives_no_complaint() {
    let system = System::good();
    system.expect(None, &[], FINE, "");
    let text = system.expect(Some(&system.file()), &[], FINE, "");
    assert_eq!(text, "nothing is wrong (0 note(s))\n");
    let measured = system.expect(Some(&system.file()), &["--seconds", "1"], FINE, "");
    assert!(
        measured.contains(" reads of a sector: half within ") && !measured.contains(" writes "),
        "{measured}"
    );
    // On a directory a file of its own is written, and nothing is left of it.
    let measured = system.expect(Some(&system.dir.path().join("data")), &["--seconds", "1"], FINE, "");
    assert!(measured.contains(" writes of a sector: half within "), "{measured}");
    assert!(measured.contains("an io timeout of "), "{measured}");
    assert_eq!(fs::read_dir(system.dir.path().join("data")).unwrap().count(), 1);
    // With leases of living hosts in it.
    let system = System::formatted();
    system.held(1, "a", 1, 10);
    system.held(2, "b", 1, 10);
    system.expect(Some(&system.file()), &["--seconds", "1"], FINE, "");
}

#[test]
fn the_same_as_json() {
    let system = System::good();
    system.remove("run/wdmd/wdmd.sock");
    system.write("proc/sys/fs/aio-nr", "60000");
    let data = system.dir.path().join("data");
    let output = system.check(Some(&data), &["--json", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(PROBLEMS));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], &report["command"]), (&1.into(), &"check".into()), "{report:#}");
    let codes: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"wdmd") && codes.last() == Some(&"aio-exhausted"), "{report:#}");
    assert_eq!(
        (&report["warnings"], &report["findings"][0]["level"]),
        (&1.into(), &"problem".into()),
        "{report:#}"
    );
    assert!(report["measured"]["writes"]["longest_us"].is_u64(), "{report:#}");
    is_documented("check", &[&report]);
    let output = system.check(None, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["measured"].is_null(), "{report:#}");
}

#[test]
fn what_cannot_be_leases_at_all() {
    let system = System::good();
    system.expect(Some(Path::new("/nonexistent/leases")), &[], PROBLEMS, "not-there");
    system.expect(Some(Path::new("/dev/null")), &[], PROBLEMS, "not-a-disk");
    system.expect(Some(Path::new("/proc/version")), &[], PROBLEMS, "no-direct-io");
    fs::File::create(system.file()).unwrap().set_len(65_536).unwrap();
    system.expect(Some(&system.file()), &[], PROBLEMS, "too-small");
    // Nor where it ends before the place.
    fs::File::create(system.file()).unwrap().set_len(4 << 20).unwrap();
    let place = |offset: &str| PathBuf::from(format!("{}:{offset}", system.file().display()));
    system.expect(Some(&place("3M")), &["--seconds", "0"], FINE, "");
    let text = system.expect(Some(&place("4M")), &["--seconds", "0"], PROBLEMS, "too-small");
    assert!(text.contains("has 4194304 bytes, and the place is at offset 4194304\n"), "{text}");
}

#[test]
fn mistakes_in_the_arguments() {
    let system = System::good();
    for options in [&["--io-timeout", "0"][..], &["--io-timeout", "256"], &["--frobnicate"], &["/x:y"]] {
        let output = system.check(None, options);
        assert_eq!(output.status.code(), Some(UNUSABLE), "{options:?}: {}", text(&output));
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_sanlock")).args(["check", "--sysroot", "/nonexistent"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(UNUSABLE), "{}", text(&output));
    assert!(
        text(&output).contains("check: --sysroot /nonexistent: No such file or directory"),
        "{}",
        text(&output)
    );
}

#[test]
fn file_systems_that_do_not_serve() {
    let mount = |line: &'static str| move |s: &System| s.write("proc/self/mountinfo", line);
    System::broken(PROBLEMS, "mounted-read-only", mount("1 0 253:7 / / ro - gfs2 /dev/x rw\n"));
    System::broken(PROBLEMS, "mounted-read-only", mount("1 0 253:7 / / rw - gfs2 /dev/x ro\n"));
    System::broken(PROBLEMS, "in-memory", mount("1 0 0:9 / / rw - tmpfs tmpfs rw\n"));
    System::broken(PROBLEMS, "layered", mount("1 0 0:9 / / rw - overlay overlay rw,lowerdir=/x\n"));
    System::broken(FINE, "one-host", mount("1 0 253:7 / / rw - ext4 /dev/x rw\n"));
    System::broken(
        FINE,
        "nfs-hard",
        mount("1 0 0:9 / / rw - nfs4 srv:/x rw,hard,proto=tcp,timeo=600,retrans=2\n"),
    );
    System::broken(WARNINGS, "nfs-udp", mount("1 0 0:9 / / rw - nfs srv:/x rw,vers=3,hard,proto=udp\n"));
    System::broken(
        WARNINGS,
        "nfs-gives-up-early",
        mount("1 0 0:9 / / rw - nfs4 srv:/x rw,soft,timeo=10,retrans=1\n"),
    );
    System::broken(
        FINE,
        "nfs-gives-up-late",
        mount("1 0 0:9 / / rw - nfs4 srv:/x rw,soft,timeo=600,retrans=6\n"),
    );
    // 7 s: the waits of 2.5, 5 and 7.5 s do not add up.
    System::broken(
        WARNINGS,
        "nfs-gives-up-early",
        mount("1 0 0:9 / / rw - nfs4 srv:/x rw,soft,timeo=25,retrans=2,proto=tcp\n"),
    );
    // 20 s: between one io timeout and eight.
    System::broken(FINE, "", mount("1 0 0:9 / / rw - nfs4 srv:/x rw,soft,timeo=100,retrans=1,proto=tcp\n"));
}

#[test]
fn the_mount_of_the_guide_gives_no_complaint() {
    let guide = fs::read_to_string(sanlock_manual::repository("docs/guide/nfs.md")).unwrap();
    let line = guide.lines().find(|line| line.contains("  nfs  ")).unwrap();
    let options = line.split_whitespace().nth(3).unwrap();
    assert!(options.contains("soft,timeo="), "{line}");
    System::broken(FINE, "", |system| {
        system.write("proc/self/mountinfo", &format!("1 0 0:9 / / rw - nfs4 srv:/x rw,{options}\n"));
    });
}

#[test]
fn of_two_mounts_the_nearer_one_counts() {
    let system = System::good();
    let data = system.dir.path().join("data");
    let near = format!("2 1 0:9 / {} rw - tmpfs tmpfs rw\n", data.display());
    system.write("proc/self/mountinfo", &format!("{near}{MOUNTS}"));
    system.expect(Some(&system.file()), &[], PROBLEMS, "in-memory");
    system.write("proc/self/mountinfo", &format!("{MOUNTS}2 1 0:9 / /nonexistent rw - tmpfs tmpfs rw\n"));
    system.expect(Some(&system.file()), &[], FINE, "");
}

#[test]
fn devices_that_do_not_serve() {
    let write = |path: &'static str, text: &'static str| move |s: &System| s.write(path, text);
    System::broken(PROBLEMS, "block-size", write("sys/class/block/dm-7/queue/logical_block_size", "2048"));
    System::broken(PROBLEMS, "device-read-only", write("sys/class/block/sda/ro", "1"));
    System::broken(WARNINGS, "misaligned", write("sys/class/block/dm-7/alignment_offset", "3584"));
    System::broken(WARNINGS, "misaligned", |s| {
        // Not the whole disk, but a partition that begins at sector 63.
        s.block("devices/pci0/host1/rport-1:0-3/target1:0:0/1:0:0:1/block/sda/sda1", "sda1");
        s.write("sys/class/block/sda1/partition", "1");
        s.write("sys/class/block/sda1/start", "63");
        s.remove("sys/class/block/dm-7/slaves/sda");
        s.link("sys/class/block/sda1", "sys/class/block/dm-7/slaves/sda1");
    });
}

#[test]
fn a_fire_timeout_that_is_not_understood() {
    System::broken(PROBLEMS, "fire-timeout-unknown", |s| {
        s.write("etc/sanlock/sanlock.conf", "watchdog_fire_timeout = 30s\n");
    });
}

#[test]
fn paths_to_the_storage() {
    System::broken(WARNINGS, "one-path", |s| s.remove("sys/class/block/dm-7/slaves/sdb"));
    System::broken(WARNINGS, "path-down", |s| s.write("sys/class/block/sdb/device/state", "offline"));
    System::broken(PROBLEMS, "multipath-queues", |s| {
        s.write("etc/multipath.conf", "defaults {\n no_path_retry queue\n}\n");
    });
    System::broken(PROBLEMS, "multipath-queues", |s| {
        s.write("etc/multipath.conf", "defaults {\n no_path_retry 4\n}\n");
        s.write(
            "etc/multipath/conf.d/acme.conf",
            "devices {\n device {\n vendor \"ACME\"\n product \"^Disk\"\n no_path_retry queue\n }\n}\n",
        );
    });
    System::broken(WARNINGS, "multipath-queues-long", |s| {
        s.write("etc/multipath.conf", "defaults {\n no_path_retry 16\n}\n");
    });
    System::broken(FINE, "no-path-retry-not-said", |s| s.remove("etc/multipath.conf"));
    System::broken(FINE, "no-path-retry-not-said", |s| {
        s.write("etc/multipath.conf", "defaults {\n no_path_retry 4\n}\n");
    });
    System::broken(WARNINGS, "no-multipath", |s| {
        s.remove("sys/dev/block/253:7");
        s.link("sys/class/block/sda", "sys/dev/block/253:7");
    });
    // The paths of NVMe that the kernel itself puts together are no disks beside it.
    let nvme = System::good();
    nvme.remove("sys/dev/block/253:7");
    nvme.link("sys/class/block/sda", "sys/dev/block/253:7");
    nvme.write("sys/class/block/sdb/hidden", "1");
    let said = nvme.check(Some(&nvme.file()), &[]);
    assert!(!String::from_utf8_lossy(&said.stdout).contains("no-multipath"), "{said:?}");
    System::broken(WARNINGS, "iscsi-timeout", |s| {
        s.write("sys/class/iscsi_session/session4/recovery_tmo", "120")
    });
    for for_ever in ["off", "-1"] {
        let said = System::broken(WARNINGS, "iscsi-timeout", |s| {
            s.write("sys/class/iscsi_session/session4/recovery_tmo", for_ever)
        });
        assert!(said.contains("waits for ever for a lost connection"), "{said}");
    }
    // A renewal may be 2T old when it begins in the path that is lost.
    System::broken(WARNINGS, "iscsi-timeout", |s| {
        s.write("sys/class/iscsi_session/session4/recovery_tmo", "60")
    });
    System::broken(WARNINGS, "fc-timeout", |s| {
        s.write("sys/class/fc_remote_ports/rport-1:0-3/fast_io_fail_tmo", "off")
    });
    System::broken(WARNINGS, "command-timeout", |s| s.write("sys/class/block/sdb/device/timeout", "180"));
    // All of that is measured against the io timeout.
    let system = System::good();
    system.write("sys/class/iscsi_session/session4/recovery_tmo", "119");
    system.expect(Some(&system.file()), &["--io-timeout", "20"], FINE, "");
    system.write("etc/sanlock/sanlock.conf", "io_timeout = 20\n");
    system.expect(Some(&system.file()), &[], FINE, "");
}

#[test]
fn the_watchdog() {
    System::broken(PROBLEMS, "wdmd", |s| {
        s.remove("run/wdmd/wdmd.sock");
        s.write("sys/class/watchdog/watchdog0/state", "inactive\n");
    });
    System::broken(PROBLEMS, "wdmd", |s| {
        // A daemon that was killed leaves its socket behind.
        s.remove("run/wdmd/wdmd.sock");
        drop(UnixListener::bind(s.at("run/wdmd/wdmd.sock")).unwrap());
        s.write("sys/class/watchdog/watchdog0/state", "inactive\n");
    });
    System::broken(PROBLEMS, "watchdog-busy", |s| s.remove("run/wdmd/wdmd.sock"));
    System::broken(PROBLEMS, "no-watchdog", |s| s.remove("sys/class/watchdog"));
    // As with IPMI, whose driver has no entry there. wdmd uses it.
    let ipmi = |s: &System| {
        s.remove("sys/class/watchdog");
        s.write("sys/class/misc/watchdog/dev", "10:130");
    };
    System::broken(FINE, "watchdog-not-judged", ipmi);
    System::broken(PROBLEMS, "watchdog-without-action", |s| {
        ipmi(s);
        s.write("sys/module/ipmi_watchdog/parameters/action", "none");
    });
    System::broken(PROBLEMS, "no-usable-watchdog", |s| {
        s.write("sys/class/watchdog/watchdog0/max_timeout", "8")
    });
    System::broken(PROBLEMS, "watchdog-too-short", |s| {
        s.write("sys/class/watchdog/watchdog0/max_timeout", "8")
    });
    System::broken(FINE, "software-watchdog", |s| {
        s.write("sys/class/watchdog/watchdog0/identity", "Software Watchdog")
    });
    System::broken(FINE, "watchdog-no-way-out", |s| s.write("sys/class/watchdog/watchdog0/nowayout", "1"));
    System::broken(WARNINGS, "watchdog-not-used", |s| {
        s.write("etc/sanlock/sanlock.conf", "use_watchdog = 0\n")
    });
    // Debian's own file, which a package that replaces the original's keeps.
    let said = System::broken(WARNINGS, "watchdog-not-used", |s| {
        s.write("etc/default/sanlock", "# options\nsanlock_opts=\"-w 0\"\n")
    });
    assert!(said.contains("sanlock_opts in /etc/default/sanlock has -w 0"), "{said}");
    let said = System::broken(WARNINGS, "watchdog-not-used", |s| {
        s.write("proc/77/cmdline", &["/usr/sbin/sanlock", "daemon", "-w", "0", "-e", "node1", ""].join("\0"))
    });
    assert!(said.contains("the daemon (process 77) was started with -w 0"), "{said}");
    let system = System::good();
    system.write("etc/default/sanlock", "sanlock_opts=\"-w 1\"\n");
    system.write("etc/sanlock/sanlock.conf", "use_watchdog = 0\n");
    system.expect(None, &[], FINE, "");
    let system = System::good();
    system.expect(None, &["--io-timeout", "1"], PROBLEMS, "io-timeout-too-short");
    system.expect(None, &["--io-timeout", "2"], WARNINGS, "io-timeout-short");
    system.expect(None, &["--io-timeout", "3"], FINE, "");
}

#[test]
fn the_machine_and_the_daemon() {
    System::broken(WARNINGS, "clock", |s| {
        s.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "jiffies\n");
    });
    System::broken(WARNINGS, "aio-exhausted", |s| s.write("proc/sys/fs/aio-nr", "60000"));
    System::broken(WARNINGS, "not-locked", |s| {
        s.write("proc/77/status", "Name:\tsanlock\nVmLck:\t       0 kB\n")
    });
    System::broken(WARNINGS, "not-real-time", |s| {
        s.write("proc/77/stat", &STAT.replace("17 1 99 2", "17 1 0 0"))
    });
    System::broken(WARNINGS, "no-real-time", |s| s.write("proc/sys/kernel/sched_rt_runtime_us", "0"));
    System::broken(FINE, "not-running", |s| s.write("run/sanlock/sanlock.pid", "78"));
    // The file stays when a daemon ends, and its number becomes another process's.
    let said = System::broken(FINE, "not-running", |s| {
        s.write("proc/77/status", "Name:\tbash\nVmLck:\t       0 kB\n");
        s.write("proc/77/cmdline", "bash\0-w\x000\0");
    });
    assert!(!said.contains("not-locked") && !said.contains("watchdog-not-used"), "{said}");
    System::broken(WARNINGS, "grace-too-long", |s| {
        s.write("etc/sanlock/sanlock.conf", "kill_grace_seconds = 60\n");
    });
    System::broken(WARNINGS, "read-extend-too-long", |s| {
        s.write("etc/sanlock/sanlock.conf", "renewal_read_extend_sec = 60\n");
    });
    System::broken(WARNINGS, "configuration-unread", |s| {
        s.remove("etc/sanlock/sanlock.conf");
        s.write("etc/sanlock/sanlock.conf/x", "");
    });
    System::broken(FINE, "configuration", |s| s.write("etc/sanlock/sanlock.conf", "use_watchdgo = 1\n"));
    System::broken(PROBLEMS, "no-such-user", |s| {
        s.write("etc/sanlock/sanlock.conf", "uname = nobody-here\n")
    });
    System::broken(WARNINGS, "on-fail", |s| {
        s.write("etc/sanlock/sanlock.conf", "on_fail:LS = /usr/local/sbin/ls-lost\n")
    });
}

/// The daemon would not start, whatever storage it is for.
#[test]
fn a_user_that_does_not_exist_is_told_without_a_place() {
    let system = System::good();
    for (key, name) in [("uname", "nobody-here"), ("gname", "no-group-here")] {
        system.write("etc/sanlock/sanlock.conf", &format!("{key} = {name}\n"));
        let text = system.expect(None, &[], PROBLEMS, "no-such-user");
        assert!(text.contains(name), "{text}");
    }
    // Where nothing is known of users, as in a part of a saved system, nothing is said.
    system.remove("etc/passwd");
    system.expect(None, &[], FINE, "");
}

#[test]
fn a_program_that_cannot_be_run_when_a_lockspace_fails() {
    let system = System::good();
    let program = "usr/local/sbin/lost";
    system.write("etc/sanlock/sanlock.conf", "on_fail = /usr/local/sbin/lost\n");
    let text = system.expect(None, &[], WARNINGS, "on-fail");
    assert!(text.contains("on_fail = /usr/local/sbin/lost: No such file"), "{text}");
    system.write(program, "#!/bin/sh\n");
    fs::set_permissions(system.at(program), fs::Permissions::from_mode(0o644)).unwrap();
    let text = system.expect(None, &[], WARNINGS, "on-fail");
    assert!(text.contains("nobody may execute it (mode 644)"), "{text}");
    fs::set_permissions(system.at(program), fs::Permissions::from_mode(0o755)).unwrap();
    system.expect(None, &[], FINE, "");
}

#[test]
fn the_daemon_s_user_has_to_get_there() {
    System::broken(PROBLEMS, "no-search-permission", |s| {
        fs::set_permissions(s.dir.path().join("data"), fs::Permissions::from_mode(0o700)).unwrap();
        s.write("etc/passwd", "root:x:0:0::/:\nsanlock:x:4294:4294::/:\n");
        s.write("etc/group", "root:x:0:\nsanlock:x:4294:\n");
    });
}

#[test]
fn what_the_leases_show() {
    let system = System::formatted();
    system.held(1, "a", 1, 10);
    system.held(2, "b", 1, 20);
    let text = system.expect(Some(&system.file()), &[], WARNINGS, "io-timeouts-differ");
    assert!(text.contains("10 s: host id 1 (a); 20 s: host id 2 (b)"), "{text}");
    let system = System::formatted();
    system.held(1, "a", 1, 10);
    system.held(2, "a", 1, 10);
    system.expect(Some(&system.file()), &[], WARNINGS, "host-name-twice");
    let file = fs::OpenOptions::new().write(true).open(system.file()).unwrap();
    file.write_all_at(&[0; 512], 1024).unwrap();
    let text = system.expect(Some(&system.file()), &[], PROBLEMS, "damage");
    assert!(text.contains("sanlock fsck "), "{text}");
    // All leases are looked at, not only the first one.
    let system = System::formatted();
    system.direct(&["init", "-r", "LS:R:DISK:2M"]);
    system.expect(Some(&system.file()), &[], FINE, "");
    let file = fs::OpenOptions::new().write(true).open(system.file()).unwrap();
    file.write_all_at(&[9], (2 << 20) + 48).unwrap();
    system.expect(Some(&system.file()), &[], PROBLEMS, "damage");
    let first = PathBuf::from(format!("{}:0:1M", system.file().display()));
    system.expect(Some(&first), &[], FINE, "");
}

#[test]
fn two_machines_with_one_host_id_are_seen_to_write_in_turn() {
    let system = System::formatted();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (name, generation) in [("a", 1), ("b", 2)].into_iter().cycle() {
                system.held(3, name, generation, 10);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(700));
            }
        });
        let output = system.check(Some(&system.file()), &["--seconds", "20"]);
        stop.store(true, Ordering::Relaxed);
        let text = told(&output, PROBLEMS, "host-id-twice");
        assert!(text.contains("host id 3"), "{text}");
    });
    // A host that was given back and joined again is one machine.
    let system = System::formatted();
    system.held(3, "a", 1, 10);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            system.held(3, "a", 2, 10);
        });
        system.expect(Some(&system.file()), &["--seconds", "4"], FINE, "");
    });
}
