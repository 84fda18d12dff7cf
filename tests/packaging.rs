//! What can be said of `packaging/` without installing anything. `packaging/test-deb` and `packaging/test-units` try the rest.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sanlock_manual::{has, repository};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

const SCRIPTS: [&str; 10] = [
    "build-deb",
    "sbom",
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

/// A directory that stands for the root of a system without systemd, unless `systemd` was called, with a daemon's socket, what the package installs as
/// settings, and programs that say how they were called.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        for dir in ["run/sanlock", "run/wdmd", "var/lib/sanlock", "usr/sbin", "bin"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        drop(UnixListener::bind(root.path().join("run/sanlock/sanlock.sock")).unwrap());
        root.program(
            "usr/sbin/sanlock",
            "case $2 in status) printf \"$STATUS\" ;; *) printf \"$ANSWER\" ;; esac",
        );
        root.program("bin/getent", "[ $1 = passwd ] || exit $GROUP");
        root.program("bin/userdel", "exit $USERDEL");
        root.program("bin/groupdel", "exit 8");
        root.program("bin/dpkg-query", "printf \"$ORIGINAL\"");
        root.program(
            "bin/deb-systemd-helper",
            "case $* in debian-installed*) exit $STATE ;; *was-enabled*) exit $ENABLED ;; esac",
        );
        root.program("bin/systemctl", "case $* in *is-active*) exit $ACTIVE ;; esac");
        let silent =
            ["deb-systemd-invoke", "systemd-sysusers", "systemd-tmpfiles", "useradd", "groupadd", "usermod"];
        for program in silent {
            root.program(&format!("bin/{program}"), "");
        }
        for (from, to) in [
            ("default/sanlock", "default/sanlock"),
            ("default/wdmd", "default/wdmd"),
            ("default/sanlock-exporter", "default/sanlock-exporter"),
            ("sanlock.conf", "sanlock/sanlock.conf"),
        ] {
            let to = root.path().join("usr/share/sanlock-rs").join(to);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(repository(&format!("packaging/{from}")), to).unwrap();
        }
        root
    }

    fn systemd(&self) {
        std::fs::create_dir_all(self.path().join("run/systemd/system")).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn program(&self, path: &str, text: &str) {
        let name = path.rsplit('/').next().unwrap();
        let file = self.path().join(path);
        std::fs::write(&file, format!("#!/bin/sh\necho \"{name} $*\" >>\"$ROOT/calls\"\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The process of the number in the pid file, and its program.
    fn runs(&self, name: &str, pid: u32, program: &str) {
        std::fs::write(self.path().join(format!("run/{name}/{name}.pid")), format!("{pid}\n")).unwrap();
        let process = self.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&process).unwrap();
        std::os::unix::fs::symlink(program, process.join("exe")).unwrap();
    }

    /// Runs a script of the package with each of its absolute paths in here; exit status, what was called, stderr.
    fn run(&self, script: &str, action: &str, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
        let text = read_to_string(repository(&format!("packaging/debian/{script}"))).unwrap();
        let (root, mut moved, mut before) = (self.path().to_str().unwrap(), String::new(), ' ');
        for (at, letter) in text.char_indices() {
            let begins = letter == '/' && !before.is_alphanumeric() && !"/*.}_-".contains(before);
            if begins && !text[at..].starts_with("/dev/null") {
                moved.push_str(root);
            }
            moved.push(letter);
            before = letter;
        }
        std::fs::write(self.path().join("calls"), "").unwrap();
        let output = Command::new("sh")
            .args(["-c", &moved, script, action])
            .env_clear()
            .env("PATH", format!("{root}/bin:/usr/bin:/bin"))
            .env("ROOT", root)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let calls = read_to_string(self.path().join("calls")).unwrap();
        (output.status.code(), calls, String::from_utf8(output.stderr).unwrap())
    }
}

/// `userdel` says 8 while a process runs as the user.
#[test]
fn a_purge_goes_on_where_the_account_is_in_use_and_says_what_is_left() {
    for (in_use, userdel) in [(true, "8"), (false, "0")] {
        let root = Root::new();
        root.runs("sanlock", 7, if in_use { "/usr/sbin/sanlock (deleted)" } else { "/usr/bin/another" });
        std::fs::write(root.path().join("run/wdmd/wdmd.pid"), "8\n").unwrap();
        let (status, calls, said) = root.run("postrm", "purge", &[("USERDEL", userdel), ("GROUP", "2")]);
        assert_eq!(status, Some(0), "{said}");
        assert!(calls.contains("userdel sanlock\n"), "{calls}");
        for left in ["the user sanlock and its group are left", "as process 7, and", "/run/sanlock is left"] {
            assert_eq!(said.contains(left), in_use, "{said}");
        }
        assert_eq!(root.path().join("run/sanlock").exists(), in_use, "its socket is there");
        assert_eq!(root.path().join("var/lib/sanlock").exists(), in_use, "as are its records");
        assert!(!root.path().join("run/wdmd").exists());
    }
    // Somebody else's first group.
    let (status, _, said) = Root::new().run("postrm", "purge", &[("USERDEL", "0"), ("GROUP", "0")]);
    assert!(status == Some(0) && said.contains("the group sanlock is left"), "{said}");
}

#[test]
fn without_systemd_the_removal_ends_a_daemon_that_has_no_lockspace() {
    const SHUTDOWN: &str = "sanlock client shutdown -w 1\n";
    let root = Root::new();
    let idle = ("STATUS", "daemon host\\np -1 helper\\n");
    let ended = ("ANSWER", "shutdown force 0 wait 1\\nshutdown done 0\\n");
    let (status, calls, said) = root.run("prerm", "remove", &[idle, ended]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    assert!(calls.ends_with(SHUTDOWN), "{calls}");
    // Nobody listens any more.
    let gone = ("ANSWER", "shutdown force 0 wait 1\\nshutdown done -111\\n");
    assert_eq!(root.run("prerm", "remove", &[("STATUS", ""), gone]).0, Some(0));
    // A lockspace is joined, or joined meanwhile.
    let joined = ("STATUS", "daemon host\\ns LS:1:/dev/vg/leases:0\\n");
    let (status, calls, said) = root.run("prerm", "remove", &[joined, ended]);
    assert!(
        status == Some(1) && said.contains("lockspaces are joined") && !calls.contains(SHUTDOWN),
        "{calls}"
    );
    let refused = ("ANSWER", "shutdown force 0 wait 1\\nshutdown done -16\\n");
    let (status, _, said) = root.run("prerm", "remove", &[idle, refused]);
    assert!(status == Some(1) && said.contains("lockspaces are joined"), "{said}");
    // One that does not answer may have everything joined; nobody who is there is another matter.
    for (running, removed) in [(false, Some(0)), (true, Some(1))] {
        let root = Root::new();
        root.program("usr/sbin/sanlock", "[ $2 = shutdown ]");
        if running {
            root.runs("sanlock", 7, "/usr/sbin/sanlock");
        }
        let (status, calls, said) = root.run("prerm", "remove", &[]);
        assert_eq!((status, said.contains("process 7")), (removed, running), "{said}");
        assert_eq!(calls.contains(SHUTDOWN), !running, "{calls}");
    }
    // It has been asked to end, and goes on.
    let busy = Root::new();
    busy.runs("sanlock", 7, "/usr/sbin/sanlock");
    let (status, calls, said) = busy.run("prerm", "remove", &[idle, ended]);
    assert!(status == Some(1) && calls.contains(SHUTDOWN) && said.contains("process 7"), "{said}");
    // An upgrade leaves it alone, and systemd ends it by itself.
    assert_eq!(root.run("prerm", "upgrade", &[idle, ended]), (Some(0), String::new(), String::new()));
    root.systemd();
    let (status, calls, _) = root.run("prerm", "remove", &[idle, ended]);
    assert!(
        status == Some(0) && calls.contains("deb-systemd-invoke stop") && !calls.contains(SHUTDOWN),
        "{calls}"
    );
    // One that is not the unit's own goes on after that: it is asked as without systemd.
    busy.systemd();
    let (status, calls, said) = busy.run("prerm", "remove", &[idle, ended]);
    let stopped = calls.find("deb-systemd-invoke stop").unwrap();
    assert!(calls.find(SHUTDOWN).is_some_and(|asked| asked > stopped), "{calls}");
    assert!(status == Some(1) && said.contains("process 7, was asked to end"), "{said}");
    let (status, _, said) = busy.run("prerm", "remove", &[idle, refused]);
    assert!(status == Some(1) && said.contains("lockspaces are joined"), "{said}");
}

/// dpkg has the original's unit stopped before it asks, and apt has the original removed.
#[test]
fn what_has_been_stopped_with_the_original_is_said_and_how_to_start_it_again() {
    const AGAIN: &str = "'systemctl start --job-mode=ignore-dependencies sanlk-resetd'";
    let joined = ("STATUS", "daemon host\\ns LS:1:/dev/vg/leases:0\\n");
    for (systemd, active, stopped) in [(true, "3", true), (true, "0", false), (false, "3", false)] {
        let root = Root::new();
        if systemd {
            root.systemd();
        }
        let (status, _, said) = root.run("preinst", "install", &[joined, ("ACTIVE", active)]);
        assert!(status == Some(1) && said.contains("lockspaces are joined"), "{said}");
        assert_eq!(said.contains(AGAIN), stopped, "{said}");
        assert_eq!(said.contains("'sanlock client status' tells beforehand"), stopped, "{said}");
        root.runs("sanlock", 7, "/usr/sbin/sanlock (deleted)");
        let (status, calls, said) = root.run("postinst", "configure", &[("ACTIVE", active)]);
        assert!(status == Some(0) && said.contains("still runs, as process 7"), "{said}");
        assert_eq!(said.contains(AGAIN), stopped, "{said}");
        assert!(!calls.contains("deb-systemd-invoke start"), "{calls}");
    }
    // A first installation, or an upgrade, with nothing to say.
    let (status, _, said) = Root::new().run("preinst", "install", &[("STATUS", "daemon host\\n")]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    let root = Root::new();
    root.systemd();
    let (status, calls, said) = root.run("postinst", "configure", &[("ACTIVE", "0")]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    assert!(calls.contains("deb-systemd-invoke start wdmd.service sanlock.service\n"), "{calls}");
}

/// Both programs read `sanlock.conf`, and the original may be there again when this package is purged.
#[test]
fn a_purge_leaves_settings_that_somebody_has_written_into_while_the_original_can_be_used() {
    for (original, edited, left) in [
        ("installed", true, true),
        ("installed", false, false),
        ("config-files", true, true),
        ("config-files", false, false),
        ("not-installed", true, false),
        ("", true, false),
        ("", false, false),
    ] {
        let root = Root::new();
        let settings = root.path().join("etc/sanlock/sanlock.conf");
        let (status, _, said) = root.run("postinst", "configure", &[]);
        assert!(status == Some(0) && settings.exists(), "{said}");
        if edited {
            std::fs::write(&settings, "io_timeout = 5\n").unwrap();
        }
        let purge = [("ORIGINAL", original), ("USERDEL", "0"), ("GROUP", "2")];
        let (status, _, said) = root.run("postrm", "purge", &purge);
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(settings.exists(), left, "{original:?}, edited: {edited}");
        assert!(!root.path().join("var/lib/sanlock-rs").exists());
    }
    // The administrator's own file, which was there before.
    let root = Root::new();
    let settings = root.path().join("etc/sanlock/sanlock.conf");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    std::fs::write(&settings, "").unwrap();
    assert_eq!(root.run("postinst", "configure", &[]).0, Some(0));
    let (status, _, said) = root.run("postrm", "purge", &[("USERDEL", "0"), ("GROUP", "2")]);
    assert!(status == Some(0) && settings.exists(), "{said}");
}

/// `deb-systemd-helper` takes a unit without state for enabled.
#[test]
fn a_purge_of_the_original_leaves_units_disabled_that_were() {
    const NO_STATE: [(&str, &str); 2] = [("STATE", "1"), ("ENABLED", "0")];
    let enables = |calls: &str| calls.contains("deb-systemd-helper enable wdmd.service\n");
    let updates = |calls: &str| calls.contains("deb-systemd-helper update-state wdmd.service\n");
    let root = Root::new();
    let (status, calls, said) = root.run("postinst", "configure", &[("ENABLED", "1")]);
    assert!(status == Some(0) && updates(&calls) && !enables(&calls), "{calls}{said}");
    let (status, calls, said) =
        root.run("postinst", "triggered", &[NO_STATE[0], NO_STATE[1], ("ACTIVE", "3")]);
    assert!(status == Some(0) && updates(&calls) && !enables(&calls), "{calls}");
    assert!(said.contains("left disabled: wdmd.service sanlock.service"), "{said}");
    // It has been started meanwhile: with "enable --now" as a rule.
    let (_, calls, said) = root.run("postinst", "triggered", &[NO_STATE[0], NO_STATE[1], ("ACTIVE", "0")]);
    assert!(enables(&calls) && !updates(&calls) && said.is_empty(), "{calls}{said}");
    // What there is of state counts for more than the note, and an upgrade takes that back.
    assert!(updates(&root.run("postinst", "configure", &[("ENABLED", "1")]).1));
    assert!(enables(&root.run("postinst", "configure", &[]).1));
    let (_, calls, _) = root.run("postinst", "triggered", &[NO_STATE[0], NO_STATE[1], ("ACTIVE", "3")]);
    assert!(enables(&calls) && !updates(&calls), "{calls}");
    // A first installation.
    assert!(enables(&Root::new().run("postinst", "configure", &NO_STATE).1));
}

/// Files with leases belong to the numbers of the account.
#[test]
fn an_account_that_is_made_again_has_its_numbers_again() {
    let root = Root::new();
    root.program(
        "bin/getent",
        "case $* in 'passwd sanlock') cat \"$ROOT/account\" 2>/dev/null ;; *' sanlock') exit 2 ;; *) exit $TAKEN ;; esac",
    );
    root.program("bin/useradd", "echo \"sanlock:x:$3:105:::\" >\"$ROOT/account\"");
    root.program(
        "bin/systemd-sysusers",
        "[ -e \"$ROOT/account\" ] || echo sanlock:x:998:998::: >\"$ROOT/account\"",
    );
    let account = root.path().join("account");
    std::fs::write(&account, "sanlock:x:102:105:::\n").unwrap();
    let (status, calls, said) = root.run("postinst", "configure", &[]);
    assert!(status == Some(0) && said.is_empty() && !calls.contains("add "), "{calls}{said}");
    // Purged with the original.
    std::fs::remove_file(&account).unwrap();
    let (status, calls, said) = root.run("postinst", "triggered", &[("TAKEN", "2")]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    assert!(calls.contains("groupadd --system --gid 105 sanlock\n"), "{calls}");
    assert!(calls.contains("useradd --system --uid 102 --gid sanlock "), "{calls}");
    assert!(calls.contains("systemd-sysusers sanlock-rs.conf\n"), "{calls}");
    // Somebody else has them by then.
    std::fs::remove_file(&account).unwrap();
    let (status, calls, said) = root.run("postinst", "triggered", &[("TAKEN", "0")]);
    assert!(status == Some(0) && !calls.contains("add "), "{calls}{said}");
    assert!(said.contains("had the numbers 102:105 and has 998:998 now"), "{said}");
}

/// A daemon of another user keeps its records in them. The account's numbers count where a unit has it made again.
#[test]
fn directories_that_are_there_keep_their_owner() {
    let tmpfiles = read_to_string(repository("packaging/tmpfiles.conf")).unwrap();
    let mut seen = 0;
    for line in tmpfiles.lines().filter(|line| line.contains("/sanlock ")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0] == "d" && words[3].starts_with(':') && words[4].starts_with(':'), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 2, "{tmpfiles}");
    let sysusers = read_to_string(repository("packaging/sysusers.conf")).unwrap();
    assert!(sysusers.lines().any(|line| line.starts_with("u sanlock /var/lib/sanlock ")), "{sysusers}");
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
        // Both need the account, and which of them is started first, or alone, is open.
        let account = "-+/usr/bin/systemd-sysusers sanlock-rs.conf";
        assert!(setting("ExecStartPre").contains(&account), "{name}: the account may be missing");
        let start = setting("ExecStart");
        assert!(start[0].starts_with(&format!("/usr/sbin/{name} ")), "{name}: {start:?}");
        for before in setting("ExecStartPre") {
            let program = before.trim_start_matches(['-', '+']).split(' ').next().unwrap_or_default();
            let known = program == "/usr/bin/systemd-sysusers" || build.contains(&format!(" {program}\n"));
            assert!(known, "{name}: {program}");
        }
    }
}

/// The exporter may be stopped at any time, and has no rights but to the daemon's socket.
#[test]
fn the_exporters_unit_has_no_privileges_and_is_left_to_the_administrator() {
    let path = repository("packaging/systemd/sanlock-exporter.service");
    let unit = read_to_string(&path).unwrap();
    for line in [
        "DynamicUser=yes",
        "SupplementaryGroups=sanlock",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateDevices=yes",
        "MemoryDenyWriteExecute=yes",
        "ExecStart=/usr/sbin/sanlock exporter $exporter_opts",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    let defaults = read_to_string(repository("packaging/default/sanlock-exporter")).unwrap();
    assert!(defaults.lines().any(|line| line == "exporter_opts=\"\""));
    for script in ["postinst", "prerm"] {
        let text = read_to_string(repository(&format!("packaging/debian/{script}"))).unwrap();
        assert!(!text.contains("enable sanlock-exporter"), "{script}");
    }
    if !has("systemd-analyze") {
        return;
    }
    // The program need not be installed where this runs, so another one stands for it.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("sanlock-exporter.service");
    std::fs::write(&copy, unit.replace("/usr/sbin/sanlock", "/bin/true")).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// A host without its usual libraries, or with others of them, can still run it.
#[test]
fn the_program_needs_no_library_but_those_of_the_compiler_and_libc() {
    if !has("ldd") {
        return;
    }
    let text = sanlock_manual::stdout_of("ldd", &[env!("CARGO_BIN_EXE_sanlock")]);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.iter().any(|name| name.starts_with("libc.so")), "{text}");
    for name in names {
        let file = name.rsplit('/').next().unwrap_or_default();
        let known = ["linux-vdso.so", "linux-gate.so", "ld-linux", "libc.so", "libgcc_s.so", "libm.so"];
        assert!(known.iter().any(|known| file.starts_with(known)), "{name}: {text}");
    }
}

/// What Grafana asks of a dashboard that it is to import. That each query is answered is for `tests/conformance/tests/exporter.rs`.
#[test]
fn the_dashboard_is_one_that_can_be_imported() {
    let text = read_to_string(repository("packaging/monitoring/sanlock-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    // Grafana gives the number of the database itself; the name that links lead to is ours.
    assert!(
        dashboard["id"].is_null()
            && word(&dashboard, "uid") == "sanlock"
            && !word(&dashboard, "title").is_empty()
    );
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36), "{dashboard:.100}");
    // Whoever imports it chooses the Prometheus: everything names the variable.
    let source = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let mut names: BTreeSet<String> = variables.iter().map(|variable| word(variable, "name")).collect();
    assert_eq!(
        (word(&variables[0], "type"), word(&variables[0], "query")),
        ("datasource".into(), "prometheus".into())
    );
    assert!(variables[1..].iter().all(|v| v["datasource"] == source && word(v, "type") == "query"));
    names.insert("__rate_interval".to_owned());
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = word(panel, "title");
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()) && !title.is_empty(),
            "{title}: its id is used twice"
        );
        let known = ["stat", "timeseries", "table", "heatmap", "gauge", "bargauge", "state-timeline"];
        assert!(known.contains(&word(panel, "type").as_str()) && panel["datasource"] == source, "{title}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is beyond the edge");
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(cells.insert((x, y)), "{title} lies on another panel at {x}, {y}");
        }
        let mut refs = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(refs.insert(word(target, "refId")) && target["datasource"] == source, "{title}");
            let query = word(target, "expr");
            assert!(query.contains("$instance"), "{title}: {query} shows hosts that were not chosen");
            for variable in query.split('$').skip(1) {
                let name: String =
                    variable.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(names.contains(&name), "{title}: {query}: no variable {name}");
            }
        }
        assert!(!refs.is_empty(), "{title} asks nothing");
    }
    assert!(ids.len() > 8, "{}", ids.len());
}
