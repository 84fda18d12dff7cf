//! What can be said of `packaging/` without installing anything. `packaging/test-deb` and `packaging/test-units` try the rest.

use sanlock_manual::repository;
use std::fs::read_to_string;
use std::process::Command;

const SCRIPTS: [&str; 9] = [
    "build-deb",
    "test-deb",
    "test-units",
    "test-units-inside",
    "load-watchdog-driver",
    "debian/preinst",
    "debian/postinst",
    "debian/prerm",
    "debian/postrm",
];

#[test]
fn the_shell_understands_the_scripts() {
    for script in SCRIPTS {
        let path = repository(&format!("packaging/{script}"));
        let output = Command::new("sh").arg("-n").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A unit that kills what must not be killed, or starts what the package does not have, is found late.
#[test]
fn the_units_kill_nobody_and_start_what_the_package_installs() {
    let build = read_to_string(repository("packaging/build-deb")).unwrap();
    for name in ["sanlock", "wdmd"] {
        let unit = read_to_string(repository(&format!("packaging/systemd/{name}.service"))).unwrap();
        let setting = |key: &str| -> Vec<&str> {
            unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
        };
        assert_eq!(setting("SendSIGKILL"), ["no"], "{name}");
        assert_eq!(setting("KillMode"), ["mixed"], "{name}");
        assert_eq!(setting("Restart"), ["no"], "{name}");
        assert_eq!(setting("Type"), ["notify"], "{name}");
        let start = setting("ExecStart");
        assert!(start[0].starts_with(&format!("/usr/sbin/{name} ")), "{name}: {start:?}");
        for before in setting("ExecStartPre") {
            let program = before.trim_start_matches(['-', '+']).split(' ').next().unwrap_or_default();
            let known = program == "/usr/bin/systemd-sysusers" || build.contains(&format!(" {program}\n"));
            assert!(known, "{name}: {program}");
        }
    }
}
