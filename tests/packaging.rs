//! What can be said of `packaging/` without installing anything. `packaging/test-deb` and `packaging/test-units` try the rest.

use sanlock_manual::{has, repository};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::read_to_string;
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
