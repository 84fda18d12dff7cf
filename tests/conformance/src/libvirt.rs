//! A virtualization host: the lock manager under test, the stock libvirtd with its sanlock plugin, and
//! domains emulated in software, in a name space of their own. Every path is the one that the packages
//! were built with.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bounded::{self, Output, Running};
use crate::namespace::Namespace;
use crate::program::{Program, missing};
use crate::storage::sparse_file;
use crate::wdmd::mount_namespaces;

const LIBVIRTD: &str = "/usr/sbin/libvirtd";
const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
const LIBRARY_DIR: &str = "/usr/lib/x86_64-linux-gnu/libvirt";
/// Only this driver is loaded: the others want a network or udev.
const DRIVER: &str = "libvirt_driver_qemu.so";
/// Where each host keeps its images: the same paths on all hosts, other files, so that nothing but the
/// lock manager keeps two emulators apart (QEMU has locks of its own).
const IMAGES: &str = "/var/lib/libvirt/images";
/// The account that libvirt looks up even if it is told to use another one.
const ACCOUNT: &str = "libvirt-qemu";

/// A daemon must answer within this time. libvirtd joins its lockspace first.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Limit for one command. The first domain waits for several emulators, which say what they can do: seconds,
/// but tens of them on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// The lockspace in which libvirt keeps the leases of disks.
pub const DISKS_LOCKSPACE: &str = "__LIBVIRT__DISKS__";

const LIBVIRTD_CONF: &str = r#"auth_unix_rw = "none"
auth_unix_ro = "none"
log_outputs = "1:stderr"
log_filters = "1:locking 3:*"
"#;

const QEMU_CONF: &str = r#"lock_manager = "sanlock"
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "file"
"#;

/// Whether libvirt, its plugin and the emulator are installed and name spaces are to be had.
///
/// # Panics
/// When not, under `CI`.
#[must_use]
pub fn available() -> bool {
    let plugin = format!("{LIBRARY_DIR}/lock-driver/sanlock.so");
    let driver = format!("{LIBRARY_DIR}/connection-driver/{DRIVER}");
    let needed = [LIBVIRTD, "/usr/bin/virsh", &plugin, &driver, EMULATOR];
    needed.iter().all(|path| Path::new(path).exists() || missing(path)) && mount_namespaces()
}

/// Whether libvirt takes care of leases by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leases<'dir> {
    /// It makes one for each writable disk, in this directory, which all hosts share.
    OfDisks(&'dir Path),
    /// Domains name theirs.
    Named,
}

/// The host. Everything on it is killed when this is dropped.
#[derive(Debug)]
pub struct LibvirtHost {
    program: Program,
    libvirtd: Running,
    sanlock: Running,
    namespace: Namespace,
}

impl LibvirtHost {
    /// Starts both daemons with host id `number` and waits until libvirtd answers, which with
    /// [`Leases::OfDisks`] includes the lockspace. The first host makes that: start the others afterwards.
    ///
    /// # Panics
    /// When a daemon does not answer.
    #[must_use]
    pub fn start(program: Program, number: u64, leases: Leases<'_>) -> Self {
        // A name with a dot is believed; others are looked up.
        let namespace = Namespace::new(&format!("host{number}.test"), &["/etc/libvirt"], ACCOUNT);
        configure(&namespace, number, leases);
        let name = format!("host{number}");
        let args = ["daemon", "-D", "-w", "0", "-l", "0", "-h", "0", "-U", "root", "-G", "root", "-e", &name];
        let mut command = namespace.command(&program.path(), &args);
        command.env_remove("SANLOCK_RUN_DIR").env("SANLOCK_PRIVILEGED", "0");
        let sanlock = Running::start(command);
        wait_for(&namespace, &program.path(), &["client", "status"]);
        let libvirtd = Running::start(libvirtd_command(&namespace));
        let host = Self { program, libvirtd, sanlock, namespace };
        host.wait_for_libvirtd();
        if matches!(leases, Leases::OfDisks(_)) {
            // libvirtd answers without it as well.
            let status = host.sanlock(&["client", "status"]);
            assert!(status.contains(DISKS_LOCKSPACE), "libvirtd has not joined its lockspace: {status}");
        }
        host
    }

    fn wait_for_libvirtd(&self) {
        wait_for(&self.namespace, Path::new("/usr/bin/virsh"), &["list"]);
    }

    /// Ends libvirtd as a crash would, and starts it again. Domains run on.
    ///
    /// # Panics
    /// When it cannot be ended or does not answer.
    pub fn restart_libvirtd(&mut self) {
        let pid = fs::read_to_string(self.namespace.file("/run/libvirtd.pid"))
            .unwrap_or_else(|error| panic!("pid of libvirtd: {error}"));
        let _ = self.run(Path::new("/bin/kill"), &["-KILL", pid.trim()]).success();
        bounded::wait_until("libvirtd to end", COMMAND_LIMIT, || self.libvirtd.ended());
        self.libvirtd = Running::start(libvirtd_command(&self.namespace));
        self.wait_for_libvirtd();
    }

    fn run(&self, program: &Path, args: &[&str]) -> Output {
        bounded::run(self.namespace.command(program, args), COMMAND_LIMIT)
    }

    /// Runs `virsh`.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn virsh(&self, args: &[&str]) -> Output {
        let all: Vec<&str> = ["-q"].iter().chain(args).copied().collect();
        self.run(Path::new("/usr/bin/virsh"), &all)
    }

    /// Starts a transient domain.
    ///
    /// # Panics
    /// When `virsh` does not end.
    #[must_use]
    pub fn create(&self, domain: &Domain) -> Output {
        self.make_images(domain);
        let place = format!("/var/lib/{}.xml", domain.name);
        fs::write(self.namespace.file(&place), domain.xml())
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        self.virsh(&["create", &place])
    }

    /// Makes the images of a domain, empty.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn make_images(&self, domain: &Domain) {
        for image in &domain.images {
            sparse_file(&self.namespace.file(image), 1 << 20);
        }
    }

    /// Makes another image and returns its path.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn add_image(&self, name: &str) -> String {
        let place = format!("{IMAGES}/{name}");
        sparse_file(&self.namespace.file(&place), 1 << 20);
        place
    }

    /// Moves a running domain to `other`, whose images are others (hence `--unsafe`); the emulators talk over the socket `meeting`.
    ///
    /// # Panics
    /// When `virsh` does not end.
    #[must_use]
    pub fn migrate(&self, name: &str, other: &Self, meeting: &Path) -> Output {
        let socket = other.namespace.file("/run/libvirt/libvirt-sock");
        let target = format!("qemu+unix:///system?socket={}", socket.display());
        let meeting = format!("unix://{}", meeting.display());
        self.virsh(&["migrate", "--live", "--unsafe", name, &target, "--migrateuri", &meeting])
    }

    /// What a domain is doing, as `virsh domstate` says; empty when it does not exist.
    #[must_use]
    pub fn state(&self, name: &str) -> String {
        self.virsh(&["domstate", name]).stdout.trim().to_owned()
    }

    /// Runs `sanlock` against the daemon of this host.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn sanlock(&self, args: &[&str]) -> String {
        self.run(&self.program.path(), args).success().stdout
    }

    /// Runs libvirt's `virt-sanlock-cleanup`, which deletes the leases that nobody holds, with the programs in `tools` before all others.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn clean_up(&self, tools: &Path) -> Output {
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", tools.display());
        self.run(Path::new("/usr/bin/env"), &[&path, "/usr/sbin/virt-sanlock-cleanup"])
    }

    /// The leases held, one line of `sanlock client status` each, without the owning process.
    #[must_use]
    pub fn leases(&self) -> Vec<String> {
        let status = self.sanlock(&["client", "status"]);
        let leases = status.lines().filter_map(|line| line.strip_prefix("r "));
        leases.map(|line| line.split(" p ").next().unwrap_or(line).to_owned()).collect()
    }

    /// The names of the processes registered with the daemon (what libvirt calls its domains).
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        let status = self.sanlock(&["client", "status"]);
        let words = status.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words
            .filter(|words| words.len() == 3 && words[0] == "p" && words[1] != "-1")
            .map(|words| words[2].into())
            .collect()
    }

    /// The daemon's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.sanlock.text().1
    }

    /// What libvirtd wrote so far.
    #[must_use]
    pub fn libvirt_log(&self) -> String {
        self.libvirtd.text().1
    }
}

impl Drop for LibvirtHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the {} daemon\n{}", self.program.word(), self.log());
            eprintln!("--- libvirtd\n{}", self.libvirt_log());
        }
    }
}

fn libvirtd_command(namespace: &Namespace) -> Command {
    let mut command = namespace.command(Path::new(LIBVIRTD), &[]);
    command.env_remove("SANLOCK_RUN_DIR").env("LIBVIRT_DRIVER_DIR", namespace.file("/var/lib/drivers"));
    command
}

fn wait_for(namespace: &Namespace, program: &Path, args: &[&str]) {
    bounded::wait_until(&format!("{} {args:?} to succeed", program.display()), START_LIMIT, || {
        bounded::run(namespace.command(program, args), COMMAND_LIMIT).code == 0
    });
}

fn configure(namespace: &Namespace, number: u64, leases: Leases<'_>) {
    let write = |name: &str, content: String| {
        let path = namespace.file(&format!("/etc/libvirt/{name}"));
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    write("libvirtd.conf", format!("{LIBVIRTD_CONF}host_uuid = \"00000000-0000-4000-8000-{number:012}\"\n"));
    write("qemu.conf", QEMU_CONF.to_owned());
    let mut plugin = format!("host_id = {number}\nio_timeout = 1\nuser = \"root\"\ngroup = \"root\"\n");
    match leases {
        Leases::OfDisks(dir) => {
            let _ = write!(plugin, "auto_disk_leases = 1\ndisk_lease_dir = \"{}\"\n", dir.display());
        }
        Leases::Named => plugin += "auto_disk_leases = 0\nrequire_lease_for_disks = 1\n",
    }
    write("qemu-sanlock.conf", plugin);
    let drivers = namespace.file("/var/lib/drivers");
    let made = fs::create_dir(&drivers)
        .and_then(|()| symlink(format!("{LIBRARY_DIR}/connection-driver/{DRIVER}"), drivers.join(DRIVER)))
        .and_then(|()| fs::create_dir_all(namespace.file(IMAGES)));
    made.unwrap_or_else(|error| panic!("{}: {error}", drivers.display()));
}

/// A domain that does nothing.
#[derive(Debug, Clone)]
pub struct Domain {
    name: String,
    images: Vec<String>,
    leases: Vec<(String, String, PathBuf, u64)>,
    shared: bool,
    on_lockfailure: Option<&'static str>,
}

impl Domain {
    /// One with this many disks.
    #[must_use]
    pub fn new(name: &str, disks: usize) -> Self {
        let images = (0..disks).map(|n| format!("{IMAGES}/{name}-{n}.img")).collect();
        Self { name: name.to_owned(), images, leases: Vec::new(), shared: false, on_lockfailure: None }
    }

    /// The same with its disks marked as shareable.
    #[must_use]
    pub fn sharing(mut self) -> Self {
        self.shared = true;
        self
    }

    /// The same with a lease: lockspace, name, file, offset.
    #[must_use]
    pub fn with_lease(mut self, lockspace: &str, key: &str, path: &Path, offset: u64) -> Self {
        self.leases.push((lockspace.to_owned(), key.to_owned(), path.to_owned(), offset));
        self
    }

    /// The same with a way to end when its leases are lost.
    #[must_use]
    pub fn on_lockfailure(mut self, action: &'static str) -> Self {
        self.on_lockfailure = Some(action);
        self
    }

    fn xml(&self) -> String {
        let mut devices = String::new();
        for (n, image) in (b'a'..).zip(&self.images) {
            let shareable = if self.shared { "<shareable/>" } else { "" };
            let _ = writeln!(
                devices,
                "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/><source file='{image}'/>\
                 <target dev='vd{}' bus='virtio'/>{shareable}</disk>",
                char::from(n)
            );
        }
        for (lockspace, key, path, offset) in &self.leases {
            let _ = writeln!(
                devices,
                "<lease><lockspace>{lockspace}</lockspace><key>{key}</key>\
                 <target path='{}' offset='{offset}'/></lease>",
                path.display()
            );
        }
        let failure = self
            .on_lockfailure
            .map_or(String::new(), |action| format!("<on_lockfailure>{action}</on_lockfailure>"));
        format!(
            "<domain type='qemu'><name>{}</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='pc'>hvm</type></os>{failure}<devices>\
             <emulator>{EMULATOR}</emulator>{devices}<controller type='usb' model='none'/><controller type='scsi' model='virtio-scsi'/>\
             <memballoon model='none'/></devices></domain>\n",
            self.name
        )
    }
}
