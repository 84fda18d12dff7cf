//! A system as `sanlock check` looks at it, all of it as it should be, for tests to break.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exit statuses.
pub(crate) const FINE: i32 = 0;
pub(crate) const WARNINGS: i32 = 1;
pub(crate) const PROBLEMS: i32 = 2;
pub(crate) const UNUSABLE: i32 = 3;

const MULTIPATH_CONF: &str =
    "defaults {\n\tpolling_interval 5\n}\noverrides {\n\tno_path_retry 4\n\tfast_io_fail_tmo 5\n}\n";
/// A cluster file system on `dm-7`.
pub(crate) const MOUNTS: &str = "1 0 253:7 / / rw,relatime - gfs2 /dev/mapper/leases rw\n";
pub(crate) const STAT: &str = "77 (sanlock daemon) S 1 77 77 0 -1 4194624 1 0 0 0 1 2 0 0 -100 0 9 0 5 1 1 0 1 1 1 0 0 0 0 0 1 0 0 0 17 1 99 2 0 0 0";

/// A copy of everything that is looked at of a system, all of it as it should be, and a lease file that is said to lie on `dm-7`: a
/// multipath device with one path over Fibre Channel and one over iSCSI.
pub(crate) struct System {
    pub(crate) dir: tempfile::TempDir,
}

impl System {
    pub(crate) fn good() -> Self {
        let system = Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
        for (path, text) in [
            ("proc/self/mountinfo", MOUNTS),
            ("proc/sys/fs/aio-nr", "100"),
            ("proc/sys/fs/aio-max-nr", "65536"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
            ("proc/77/status", "Name:\tsanlock\nVmLck:\t   20480 kB\n"),
            ("proc/77/stat", STAT),
            ("run/sanlock/sanlock.pid", "77\n"),
            ("run/wdmd/wdmd.sock", ""),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/sanlock/sanlock.conf", "high_priority = 1\n"),
            ("etc/multipath.conf", MULTIPATH_CONF),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/class/watchdog/watchdog0/identity", "iTCO_wdt\n"),
            ("sys/class/watchdog/watchdog0/state", "active\n"),
            ("sys/class/watchdog/watchdog0/nowayout", "0\n"),
            ("sys/class/watchdog/watchdog0/max_timeout", "613\n"),
            ("sys/class/fc_remote_ports/rport-1:0-3/fast_io_fail_tmo", "5\n"),
            ("sys/class/fc_remote_ports/rport-1:0-3/dev_loss_tmo", "600\n"),
            ("sys/class/iscsi_session/session4/recovery_tmo", "5\n"),
        ] {
            system.write(path, text);
        }
        system.block("devices/virtual/block/dm-7", "dm-7");
        system.write("sys/class/block/dm-7/dm/uuid", "mpath-3600a\n");
        system.write("sys/class/block/dm-7/dm/name", "leases\n");
        system.disk("devices/pci0/host1/rport-1:0-3/target1:0:0/1:0:0:1", "sda", "naa.600a");
        system.disk("devices/platform/host2/session4/target2:0:0/2:0:0:1", "sdb", "naa.600a");
        for path in ["sda", "sdb"] {
            system.link(&format!("sys/class/block/{path}"), &format!("sys/class/block/dm-7/slaves/{path}"));
        }
        system.link("sys/class/block/dm-7", "sys/dev/block/253:7");
        fs::create_dir_all(system.dir.path().join("data")).unwrap();
        let file = fs::File::create(system.file()).unwrap();
        file.set_len(4 << 20).unwrap();
        system
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("data/leases")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A link from `from` to what is at `to` now.
    pub(crate) fn link(&self, to: &str, from: &str) {
        let from = self.at(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(fs::canonicalize(self.at(to)).unwrap(), from).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.at(path);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn block(&self, place: &str, name: &str) {
        let of = |file: &str| format!("sys/{place}/{file}");
        self.write(&of("ro"), "0\n");
        self.write(&of("alignment_offset"), "0\n");
        self.write(&of("queue/logical_block_size"), "512\n");
        self.write(&of("queue/physical_block_size"), "4096\n");
        self.link(&format!("sys/{place}"), &format!("sys/class/block/{name}"));
    }

    /// A SCSI disk at this place in the tree of devices.
    pub(crate) fn disk(&self, place: &str, name: &str, wwid: &str) {
        for (file, text) in [
            ("state", "running"),
            ("timeout", "30"),
            ("vendor", "ACME    "),
            ("model", "Disk 1  "),
            ("wwid", wwid),
        ] {
            self.write(&format!("sys/{place}/{file}"), text);
        }
        self.block(&format!("{place}/block/{name}"), name);
        self.link(&format!("sys/{place}"), &format!("sys/{place}/block/{name}/device"));
    }

    /// Runs the check on this path, or on the machine alone.
    pub(crate) fn check(&self, place: Option<&Path>, options: &[&str]) -> Output {
        self.check_by(Command::new(env!("CARGO_BIN_EXE_sanlock")), place, options)
    }

    /// The same without root's right to pass over permissions.
    pub(crate) fn check_unprivileged(&self, place: &Path, options: &[&str]) -> Output {
        let command = if nix::unistd::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", "-dac_override,-dac_read_search", "--"]);
            command.arg(env!("CARGO_BIN_EXE_sanlock"));
            command
        } else {
            Command::new(env!("CARGO_BIN_EXE_sanlock"))
        };
        self.check_by(command, Some(place), options)
    }

    pub(crate) fn check_by(&self, mut command: Command, place: Option<&Path>, options: &[&str]) -> Output {
        let measured = if options.contains(&"--seconds") { &[][..] } else { &["--seconds", "0"] };
        command.args(["check", "--sysroot"]).arg(self.dir.path().join("root"));
        command.args(measured).args(options).args(place).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(&self, place: Option<&Path>, options: &[&str], status: i32, code: &str) -> String {
        told(&self.check(place, options), status, code)
    }

    /// With this change the check of the lease file says `code`, with this exit status; without it, nothing.
    #[track_caller]
    pub(crate) fn broken(status: i32, code: &str, change: impl FnOnce(&Self)) -> String {
        let system = Self::good();
        change(&system);
        system.expect(Some(&system.file()), &[], status, code)
    }

    /// Formats the lease file.
    pub(crate) fn formatted() -> Self {
        let system = Self::good();
        system.direct(&["init", "-s", "LS:0:DISK:0"]);
        system
    }

    #[track_caller]
    pub(crate) fn direct(&self, args: &[&str]) {
        let args = args.iter().map(|a| a.replace("DISK", self.file().to_str().unwrap()));
        let output = Command::new(env!("CARGO_BIN_EXE_sanlock")).arg("direct").args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Host `id` holds its host id, as on disk.
    pub(crate) fn held(&self, id: u64, name: &str, generation: u64, io_timeout: u32) {
        let fields = self.dir.path().join(format!("fields-{id}"));
        let text = format!(
            "owner_id {id}\nowner_generation {generation}\nresource_name {name}\ntimestamp 7\nio_timeout {io_timeout}\n"
        );
        fs::write(&fields, text).unwrap();
        self.direct(&["write_leader", "-s", &format!("LS:{id}:DISK:0"), "-F", fields.to_str().unwrap()]);
    }
}

pub(crate) fn text(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    out + &err
}

/// A check that ended with this status and said `code`, or complained of nothing where that is empty; its output.
#[track_caller]
pub(crate) fn told(output: &Output, status: i32, code: &str) -> String {
    let text = text(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    let told: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let line = line.strip_prefix("PROBLEM ").or(line.strip_prefix("WARNING "));
            line.or(text.contains(&format!("note {code}\n")).then_some(code))
        })
        .collect();
    assert!(told.contains(&code) || (code.is_empty() && told.is_empty()), "{code}: {text}");
    for part in ["\n  seen  ", "\n  why   ", "\n  do    "] {
        assert!(code.is_empty() || text.contains(part), "{text}");
    }
    text
}

/// Says that a test cannot be done here; with CI set that is a failure.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI must not skip");
    eprintln!("skipped: {why}");
}
