use super::*;
use std::collections::BTreeMap;

/// Cases recorded from 3.8.5: a file, extra options, and the settings that `status -D` then showed.
const RECORDED: &str = include_str!("../../tests/golden/conf-cases.txt");

/// The settings under the names that `status -D` gives them.
fn shown(config: &Config) -> BTreeMap<&'static str, String> {
    let (ignore, align, num) = match config.max_sectors_kb {
        MaxSectorsKb::Ignore => (1, 0, 0),
        MaxSectorsKb::Align => (0, 1, 0),
        MaxSectorsKb::Kib(kib) => (0, 0, kib),
    };
    BTreeMap::from([
        ("our_host_name", config.our_host_name.map_or_else(String::new, |name| name.to_string())),
        ("use_watchdog", config.use_watchdog.to_string()),
        ("high_priority", config.high_priority.to_string()),
        ("mlock_level", config.mlock_level.to_string()),
        ("quiet_fail", config.quiet_fail.to_string()),
        ("debug_renew", config.debug_renew.to_string()),
        ("debug_clients", config.debug_clients.to_string()),
        ("debug_cmds", format!("{:#x}", config.debug_cmds)),
        ("renewal_history_size", config.renewal_history_size.to_string()),
        ("sh_retries", config.sh_retries.to_string()),
        ("max_sectors_kb_ignore", ignore.to_string()),
        ("max_sectors_kb_align", align.to_string()),
        ("max_sectors_kb_num", num.to_string()),
        ("max_worker_threads", config.max_worker_threads.to_string()),
        ("write_init_io_timeout", config.write_init_io_timeout.to_string()),
        ("use_aio", config.use_aio.to_string()),
        ("kill_grace_seconds", config.kill_grace_seconds().to_string()),
    ])
}

/// The options that every recorded daemon was started with; `-e` and `-U`, `-G` are left out where the file is to be seen.
fn common() -> Overrides {
    Overrides {
        use_watchdog: Some(0),
        high_priority: Some(0),
        mlock_level: Some(0),
        uname: Some("root".to_owned()),
        gname: Some("root".to_owned()),
        ..Overrides::default()
    }
}

fn load(file: &str, overrides: &Overrides) -> Config {
    let mut config = Config::default();
    config.apply_file(file.as_bytes());
    config.apply_overrides(overrides);
    config
}

fn unquote(text: &str) -> String {
    text.trim_matches('\'').replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")
}

/// A bit that is taken back at once is seen by nobody: events and requests would never arrive.
#[test]
fn a_bit_is_never_kept_for_no_time() {
    let given = |seconds| {
        let overrides = Overrides { set_bitmap_seconds: Some(seconds), ..Overrides::default() };
        load("", &overrides).set_bitmap_seconds
    };
    assert_eq!((given(0), given(1), given(30)), (None, Some(1), Some(30)));
}

#[test]
fn the_grace_follows_the_watchdog_unless_given() {
    let grace = |file: &str, given| {
        let overrides = Overrides { kill_grace_seconds: given, ..common() };
        load(file, &overrides).kill_grace_seconds()
    };
    for (fire, expected) in [(60, 40), (3600, 40), (59, 15), (30, 15), (29, 0), (10, 0)] {
        assert_eq!(grace(&format!("watchdog_fire_timeout = {fire}\n"), None), expected, "{fire}");
    }
    // With a watchdog there is more time between SIGKILL and the reset.
    let watched = |file: &str| {
        let overrides = Overrides { use_watchdog: Some(1), ..common() };
        load(file, &overrides).kill_grace_seconds()
    };
    for (fire, expected) in [(60, 34), (59, 10), (30, 10), (29, 0), (10, 0)] {
        assert_eq!(watched(&format!("watchdog_fire_timeout = {fire}\n")), expected, "{fire}");
    }
    assert_eq!(watched("kill_grace_seconds = 40\n"), 40);
    assert_eq!(grace("watchdog_fire_timeout = 10\nkill_grace_seconds = 3\n", None), 3);
    assert_eq!(grace("kill_grace_seconds = 0\n", None), 0);
    assert_eq!(grace("kill_grace_seconds = 3\n", Some(4)), 4);
    assert_eq!(grace("kill_grace_seconds = 61\n", None), 40);
    assert_eq!(grace("", Some(61)), 40);
}

#[test]
fn the_timeouts_of_5_1_are_settings() {
    let config = load("io_timeout = 2\nwatchdog_fire_timeout = 10\n", &common());
    assert_eq!((config.io_timeout.secs(), config.fire.secs()), (2, 10));
    assert_eq!(config.warnings, []);
    let config = load("", &common());
    assert_eq!((config.io_timeout.secs(), config.fire.secs()), (10, 60));
}

#[test]
fn huge_pages_are_a_setting_as_in_5_1() {
    assert!(load("", &common()).hugepages);
    assert!(load("use_hugepages = none\nuse_hugepages = all\n", &common()).hugepages);
    let config = load("use_hugepages = none\n", &common());
    assert_eq!((config.hugepages, config.warnings), (false, vec![]));
    // A word that is neither changes nothing; 5.1 says nothing about it, we do.
    let config = load("use_hugepages = none\nuse_hugepages = 0\n", &common());
    assert!(!config.hugepages);
    let told: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("line 2: use_hugepages \"0\" is not all or none and is ignored"), "{told:?}");
}

#[test]
fn defaults_as_recorded() {
    let overrides = Overrides { our_host_name: Some(b"hostA".to_vec()), ..common() };
    let shown = shown(&load("", &overrides));
    let recorded = RECORDED.split("\n\n").next().unwrap().lines().skip(1);
    let mut compared = 0;
    for line in recorded {
        let (key, value) = line.trim().split_once('=').unwrap();
        if let Some(ours) = shown.get(key) {
            assert_eq!(ours, value, "{key}");
            compared += 1;
        }
    }
    assert_eq!(compared, shown.len());
}

#[test]
fn cases_as_recorded() {
    // Cases where we differ on purpose: what cannot be understood is skipped, not read as another value.
    let differs: BTreeMap<&str, &[(&str, &str)]> = BTreeMap::from([
        ("key without value reuses the previous number (reference bug)", &[("quiet_fail", "7")][..]),
        ("number text that is not a number", &[]),
        // A setting of 5.1.1 that we have too; the grace follows from it.
        ("timeouts (5.1.1 only)", &[("kill_grace_seconds", "15")]),
        ("timeouts, grace set (5.1.1 only)", &[("kill_grace_seconds", "12")]),
        ("comment longer than 127 characters spills over (reference bug)", &[]),
    ]);
    let mut cases = 0;
    for case in RECORDED.split("\n\n").skip(1) {
        let mut lines = case.trim().lines();
        let title = lines.next().unwrap().strip_prefix("case: ").unwrap();
        let file = unquote(lines.next().unwrap().strip_prefix("file: ").unwrap());
        let overrides = match lines.next().unwrap().strip_prefix("extra arguments: ").unwrap() {
            "-" => common(),
            "-Q 1 -H 9 -t 20" => Overrides {
                quiet_fail: Some(1),
                renewal_history_size: Some(9),
                max_worker_threads: Some(20),
                ..common()
            },
            other => panic!("unknown arguments {other}"),
        };
        assert_eq!(lines.next(), Some("changed:"));
        let mut expected = shown(&load("", &common()));
        let recorded =
            lines.filter(|line| line.contains('=')).map(|line| line.trim().split_once('=').unwrap());
        let changes: Vec<(&str, &str)> = match differs.get(title) {
            Some(changes) => changes.to_vec(),
            None => recorded.collect(),
        };
        for (key, value) in changes {
            expected.insert(expected.get_key_value(key).map(|(k, _)| *k).unwrap(), value.to_owned());
        }
        assert_eq!(shown(&load(&file, &overrides)), expected, "{title}");
        cases += 1;
    }
    assert_eq!(cases, 21);
}

#[test]
fn what_has_no_effect_is_reported() {
    for (file, expected) in [
        ("quiet_fail = 0\n", None),
        ("no_such_key = 5\n", Some("line 1: unknown setting \"no_such_key\" is ignored")),
        ("\ndebug_hosts = 7\n", Some("line 2: \"debug_hosts\" is a setting of sanlock 5.1")),
        (
            "io_timeout = 0\n",
            Some("line 1: io_timeout \"0\" is not a number from 1 to 255 and is ignored; 10 is used"),
        ),
        (
            "io_timeout = abc\n",
            Some("io_timeout \"abc\" is not a number from 1 to 255 and is ignored; 10 is used"),
        ),
        (
            "io_timeout = 5\nio_timeout = 256\n",
            Some("line 2: io_timeout \"256\" is not a number from 1 to 255 and is ignored; 5 is used"),
        ),
        (
            "watchdog_fire_timeout = 3\n",
            Some("watchdog_fire_timeout \"3\" is not a number from 4 to 3600 and is ignored"),
        ),
        (
            "use_watchdog = yes\n",
            Some("use_watchdog \"yes\" is not a number (0 for off, 1 for on) and is ignored"),
        ),
        ("max_worker_threads = few\n", Some("max_worker_threads \"few\" is not a number from 2 to 256")),
        ("sh_retries = -1\n", Some("sh_retries \"-1\" is not a number")),
        ("logfile_priority = 8\n", Some("logfile_priority \"8\" is not a log priority")),
        ("mlock_level = 3\n", Some("mlock_level \"3\" is not a number from 0 to 2")),
        ("max_sectors_kb = 511\n", Some("max_sectors_kb \"511\" is not ignore, align or an even number")),
        ("max_worker_threads = 1\n", Some("max_worker_threads 1 is outside 2 to 256, 2 is used")),
        ("debug_cmd = acquire\n", Some("begins neither with + nor with -")),
        ("debug_io = all\n", Some("neither submit nor complete")),
        ("write_init_io_timeout = 0\n", Some("is not a number from 1 to")),
        (" sh_retries = 3\n", Some("begins with a blank")),
        ("uname =\n", Some("\"uname\" has no value")),
        ("use_aio = 1\n", None),
        ("use_aio = 0\n", Some("line 1: \"use_aio\" is without effect: every transfer has a time limit")),
        ("max_sectors_kb = align\n", Some("\"max_sectors_kb\" is without effect")),
        ("debug_io = submit\n", Some("\"debug_io\" is without effect")),
        ("paxos_debug_all = 1\n", Some("\"paxos_debug_all\" is without effect")),
        ("names_log_priority = 6\n", Some("\"names_log_priority\" is without effect")),
    ] {
        let warnings: Vec<String> =
            load(file, &Overrides::default()).warnings.iter().map(ToString::to_string).collect();
        match expected {
            None => assert!(warnings.is_empty(), "{file:?}: {warnings:?}"),
            Some(text) => {
                assert_eq!(warnings.len(), 1, "{file:?}: {warnings:?}");
                assert!(warnings[0].contains(text), "{file:?}: {warnings:?}");
            }
        }
    }
}

#[test]
fn an_unusable_value_leaves_the_watchdog_on() {
    for value in ["yes", "on", "0x1", "1x", "-0", ""] {
        assert_eq!(
            load(&format!("use_watchdog = {value}\n"), &Overrides::default()).use_watchdog,
            1,
            "{value:?}"
        );
    }
}

#[test]
fn options_out_of_range_are_reported_and_ignored() {
    let overrides = Overrides {
        kill_grace_seconds: Some(61),
        logfile_priority: Some(9),
        syslog_priority: Some(-2),
        mlock_level: Some(3),
        max_worker_threads: Some(0),
        renewal_history_size: Some(u32::MAX),
        our_host_name: Some(vec![b'h'; 60]),
        ..Overrides::default()
    };
    let config = load("", &overrides);
    assert_eq!(config.warnings.len(), 7, "{:?}", config.warnings);
    let expected = Config {
        max_worker_threads: 2,
        our_host_name: Some(Name::new(&[b'h'; 48]).unwrap()),
        warnings: config.warnings.clone(),
        ..Config::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn the_option_for_asynchronous_io_counts_and_is_without_effect_as_the_setting() {
    let given = |file, use_aio| load(file, &Overrides { use_aio, ..Overrides::default() });
    for (file, option, shown, warned) in [
        ("", Some(0), 0, vec!["-a 0 is without effect: every transfer has a time limit"]),
        ("", Some(1), 1, vec![]),
        ("use_aio = 1\n", Some(0), 0, vec!["-a 0 is without effect: every transfer has a time limit"]),
        ("", None, 1, vec![]),
    ] {
        let config = given(file, option);
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!((config.use_aio, warnings), (shown, warned.iter().map(ToString::to_string).collect()));
    }
}

#[test]
fn settings_of_every_kind_arrive() {
    let mut config = load(
        "logfile_priority = -1\nsyslog_priority = 7\nnames_log_priority = 6\nlogfile_use_utc = 1\ndebug_io = submit,complete\n\
         paxos_debug_all = 1\nuse_aio = 0\nuname = alice\ngname = staff\nrenewal_read_extend_sec = 0\nhigh_priority = 1\n\
         write_init_io_timeout = 5\nour_host_name = n1\nmlock_level = 2\ndebug_clients = 1\n",
        &Overrides::default(),
    );
    let expected = Config {
        logfile_priority: -1,
        syslog_priority: 7,
        names_log_priority: 6,
        logfile_use_utc: 1,
        debug_io_submit: true,
        debug_io_complete: true,
        paxos_debug_all: 1,
        use_aio: 0,
        uname: Some("alice".to_owned()),
        gname: Some("staff".to_owned()),
        renewal_read_extend_sec: Some(0),
        high_priority: 1,
        write_init_io_timeout: 5,
        our_host_name: Some(Name::new(b"n1").unwrap()),
        mlock_level: 2,
        debug_clients: 1,
        ..Config::default()
    };
    // Those that change nothing say so.
    assert_eq!(std::mem::take(&mut config.warnings).len(), 4);
    assert_eq!(config, expected);
}

#[test]
fn a_wait_for_reads_that_is_longer_than_a_lockspace_allows_is_told_with_what_is_used() {
    let excess = |seconds, io_timeout| {
        let config = Config { renewal_read_extend_sec: seconds, ..Config::default() };
        config.read_extend_excess(IoTimeout::new(io_timeout).unwrap())
    };
    for (seconds, io_timeout) in [(None, 10), (Some(0), 1), (Some(30), 10), (Some(3), 1), (Some(765), 255)] {
        assert_eq!(excess(seconds, io_timeout), None);
    }
    assert_eq!(
        excess(Some(31), 10).unwrap(),
        "renewal_read_extend_sec 31 is longer than 3 io timeouts: with an io timeout of 10 s the wait ends after 30 s, so that a lost \
         read can be repeated before the lockspace fails"
    );
    assert!(excess(Some(31), 2).unwrap().contains("an io timeout of 2 s the wait ends after 6 s"));
    assert!(excess(Some(u32::MAX), 255).is_some());
}

#[test]
fn environment() {
    for (privileged, expected) in
        [(None, true), (Some("1"), true), (Some("0"), false), (Some("yes"), false), (Some(""), false)]
    {
        let mut config = Config::default();
        config.apply_environment(&Environment { run_dir: None, privileged: privileged.map(OsString::from) });
        assert_eq!(config.privileged, expected, "{privileged:?}");
        assert_eq!(config.run_dir, Path::new(DEFAULT_RUN_DIR));
    }
    let mut config = Config::default();
    config.apply_environment(&Environment { run_dir: Some("/tmp/x".into()), privileged: None });
    assert_eq!(config.run_dir, Path::new("/tmp/x"));
}

#[test]
fn a_missing_file_is_no_error_and_a_directory_is() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read_file(&dir.path().join("none")).unwrap().is_none());
    assert!(read_file(dir.path()).is_err());
    std::fs::write(dir.path().join("conf"), "a = 1\n").unwrap();
    assert_eq!(read_file(&dir.path().join("conf")).unwrap().unwrap(), b"a = 1\n");
}

#[test]
fn a_grace_that_the_watchdog_ends_is_told() {
    let excess = |fire: &str, grace: &str, use_watchdog| {
        let overrides = Overrides { use_watchdog: Some(use_watchdog), ..common() };
        load(&format!("{fire}kill_grace_seconds = {grace}\n"), &overrides).grace_excess()
    };
    for (fire, last) in
        [("", 42), ("watchdog_fire_timeout = 120\n", 60), ("watchdog_fire_timeout = 30\n", 17)]
    {
        assert_eq!(excess(fire, &last.to_string(), 1), None, "{fire}{last}");
        let next = (last + 1).to_string();
        assert_eq!(excess(fire, &next, 1).is_some(), last < 60, "{fire}{next}");
    }
    // Nothing resets that host, and SIGKILL has to come while nobody else has its leases.
    for (fire, last) in [("", 50), ("watchdog_fire_timeout = 30\n", 20), ("watchdog_fire_timeout = 10\n", 0)]
    {
        assert_eq!(excess(fire, &last.to_string(), 0), None, "{fire}{last}");
        assert!(excess(fire, &(last + 1).to_string(), 0).is_some(), "{fire}{last}");
        assert!(load(fire, &Overrides { use_watchdog: Some(0), ..common() }).kill_grace_seconds() <= last);
    }
    let told = excess("", "43", 1).unwrap();
    assert!(told.contains("resets this host some 43 s after"), "{told}");
    assert_eq!(load("watchdog_fire_timeout = 10\n", &common()).grace_excess(), None, "nothing was given");
}

#[test]
fn an_option_that_3_8_5_ignores_is_said_to_be_without_effect() {
    let mut config = Config::default();
    config.apply_overrides(&Overrides { io_timeout_ignored: true, ..Overrides::default() });
    assert_eq!(config.io_timeout, Config::default().io_timeout);
    assert!(config.warnings[0].to_string().contains("-o is without effect"), "{:?}", config.warnings);
}
