//! One virtual machine: started, given orders, cut from its storage, ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::image::Boot;
use crate::layout::{LEASE_DISK, LOCKSPACE_OFFSET, SECOND_LEASE_DISK};
use crate::qmp::Qmp;
use crate::scenario::{Device, Kind, Outfit};
use crate::timeline::{GuestNo, Timeline, What};
use crate::watch::Images;

/// Longest boot: seconds by itself, but the machine may be busy.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Longest wait for the answer to an order that does not wait itself.
const CUT_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for the emulator's sockets.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How a disk is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Every request fails at once.
    Errors,
    /// No request comes back.
    Hang,
}

/// What a guest is made of.
pub(crate) struct Build<'a> {
    /// Which of the guests.
    pub(crate) number: GuestNo,
    /// Whose programs it runs.
    pub(crate) kind: Kind,
    /// What else is in it.
    pub(crate) outfit: Outfit,
    /// Its watchdog.
    pub(crate) device: Device,
    /// The disks, `None` in a guest without peers and with a clock that jumps over idle time.
    pub(crate) images: &'a Images,
    /// Whether the clock jumps over idle time.
    pub(crate) skip_waits: bool,
}

/// A running guest; it is ended when this is dropped.
pub(crate) struct Guest {
    number: GuestNo,
    emulator: Child,
    qmp: Qmp,
    orders: UnixStream,
    answers: Receiver<String>,
    asked: u32,
    timeline: Arc<Timeline>,
}

impl Guest {
    /// Starts the emulator and waits until the guest takes orders.
    ///
    /// # Errors
    /// The emulator is missing or refuses, or the guest does not boot.
    pub(crate) fn start(
        boot: &Boot,
        build: &Build<'_>,
        dir: &Path,
        timeline: Arc<Timeline>,
    ) -> Result<Self, String> {
        let number = build.number;
        let socket = |what: &str| dir.join(format!("{}-{what}", number + 1));
        let (control, orders) = (socket("control"), socket("orders"));
        for left in [&control, &orders] {
            // Of an emulator that has ended; a missing one is what is wanted.
            let _ = std::fs::remove_file(left);
        }
        let errors = socket("emulator.log");
        let log = File::create(&errors).map_err(|error| format!("{}: {error}", errors.display()))?;
        let mut command = emulator(boot, build, &control, &orders)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut emulator = command.spawn().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let ready = || -> Result<_, String> {
            let qmp = Qmp::new(connect(&control)?, number, Arc::clone(&timeline))?;
            Ok((qmp, connect(&orders)?))
        };
        let (qmp, stream) = match ready() {
            Ok(ready) => ready,
            Err(error) => {
                end(&mut emulator);
                let said = std::fs::read_to_string(&errors).unwrap_or_default();
                return Err(format!("guest {}: {error}; the emulator says: {said}", number + 1));
            }
        };
        let reader = stream.try_clone().map_err(|error| format!("orders: {error}"))?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let console = emulator.stdout.take();
        let lines = Arc::clone(&timeline);
        thread::spawn(move || {
            let Some(console) = console else { return };
            for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line);
                lines.push(What::Line(number, text.trim_end().replace(|c: char| c.is_control(), "")));
            }
        });
        let mut guest = Self { number, emulator, qmp, orders: stream, answers, asked: 0, timeline };
        guest.answer_with("READY", BOOT_LIMIT)?;
        Ok(guest)
    }

    /// Lets the guest's shell perform `order` (one line) and returns its exit status and output.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub(crate) fn order(&mut self, order: &str, limit: Duration) -> Result<(i32, String), String> {
        self.asked += 1;
        let mark = format!("MARK-{}", self.asked);
        // On one line: reading the next one would already be a new exit status.
        self.timeline.did(format!("host {}: {order}", self.number + 1));
        self.write(&format!("{order}; S=$?; echo; echo {mark} $S"))?;
        let (last, before) = self.answer_with(&mark, limit).map_err(|error| format!("{order}: {error}"))?;
        let status =
            last.trim_start_matches(&mark).trim().parse().map_err(|_| format!("{order}: {last:?}"))?;
        Ok((status, before))
    }

    /// Gives an order (one line) whose answer nobody waits for.
    ///
    /// # Errors
    /// The guest is gone.
    pub(crate) fn send(&mut self, order: &str) -> Result<(), String> {
        self.timeline.did(format!("host {}: {order}", self.number + 1));
        self.write(order)
    }

    fn write(&mut self, line: &str) -> Result<(), String> {
        let sent = self.orders.write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| format!("guest {}: {line}: {error}", self.number + 1))
    }

    /// As [`Guest::order`], and the exit status must be 0.
    ///
    /// # Errors
    /// It is not, or there is no answer.
    pub(crate) fn must(&mut self, order: &str, limit: Duration) -> Result<String, String> {
        match self.order(order, limit)? {
            (0, output) => Ok(output),
            (status, output) => Err(format!("host {}: {order}: status {status}: {output}", self.number + 1)),
        }
    }

    fn answer_with(&mut self, mark: &str, limit: Duration) -> Result<(String, String), String> {
        let deadline = Instant::now() + limit;
        let mut before = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.answers.recv_timeout(left);
            let line = line.map_err(|_| format!("guest {}: no {mark} within {limit:?}", self.number + 1))?;
            if line.trim().starts_with(mark) {
                return Ok((line.trim().to_owned(), before.trim().to_owned()));
            }
            before.push_str(line.trim());
            before.push('\n');
        }
    }

    /// Cuts a lease disk. No request begun after this is performed.
    ///
    /// # Errors
    /// The emulator refuses, or the guest does not answer.
    pub(crate) fn cut(&mut self, disk: usize, how: Cut) -> Result<(), String> {
        self.timeline.did(format!("host {}: lease disk {disk} is cut: {how:?}", self.number + 1));
        match how {
            Cut::Errors => self.route(disk, &format!("d{disk}err")),
            Cut::Hang => {
                self.throttle(disk, 1)?;
                self.spend_free_request(disk)
            }
        }
    }

    /// A throttled disk performs one more request at once and makes those behind it wait for the time that it should have taken. If
    /// that one were the first write of a release, the release would not hang in a write.
    fn spend_free_request(&mut self, disk: usize) -> Result<(), String> {
        let device = if disk == 0 { LEASE_DISK } else { SECOND_LEASE_DISK };
        let read = format!("sanlock direct read_leader -s LS:1:{device}:{LOCKSPACE_OFFSET}");
        // In the background: the free request may be spent already, by a renewal.
        self.order(&format!("{read} >/dev/null 2>&1 & usleep 300000"), CUT_LIMIT).map(drop)
    }

    /// Gives a lease disk back. What hung is performed now.
    ///
    /// # Errors
    /// The emulator refuses.
    pub(crate) fn restore(&mut self, disk: usize, how: Cut) -> Result<(), String> {
        self.timeline.did(format!("host {}: lease disk {disk} is back", self.number + 1));
        match how {
            Cut::Errors => self.route(disk, &format!("d{disk}f")),
            Cut::Hang => self.throttle(disk, 0),
        }
    }

    fn route(&mut self, disk: usize, file: &str) -> Result<(), String> {
        let raw = json!({"driver": "raw", "node-name": format!("d{disk}r"), "file": file, "cache": {"direct": true}});
        self.qmp.command("blockdev-reopen", &json!({ "options": [raw] })).map(drop)
    }

    fn throttle(&mut self, disk: usize, bytes_per_second: u64) -> Result<(), String> {
        let device = format!("/machine/peripheral/d{disk}/virtio-backend");
        let limits = json!({"id": device, "bps": bytes_per_second, "bps_rd": 0, "bps_wr": 0,
            "iops": 0, "iops_rd": 0, "iops_wr": 0});
        self.qmp.command("block_set_io_throttle", &limits).map(drop)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.emulator);
    }
}

fn end(emulator: &mut Child) {
    // It may have ended by itself; either way it is waited for.
    let _ = emulator.kill();
    let _ = emulator.wait();
}

fn connect(path: &PathBuf) -> Result<UnixStream, String> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(format!("{}: {error}", path.display())),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn emulator(boot: &Boot, build: &Build<'_>, control: &Path, orders: &Path) -> Result<Command, String> {
    // A guest that is starved looks like one that hangs: before other work, where that is allowed.
    let mut command = Command::new("nice");
    command.args(["-n", "-10", "qemu-system-x86_64"]);
    let mut arg = |words: &[&str]| {
        command.args(words);
    };
    let path = |path: &Path| -> Result<String, String> {
        // Commas are doubled in the emulator's option syntax.
        path.to_str()
            .map(|text| text.replace(',', ",,"))
            .ok_or_else(|| format!("{} is not UTF-8", path.display()))
    };
    arg(&["-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"]);
    arg(&["-action", "watchdog=reset", "-serial", "stdio"]);
    arg(&["-chardev", &format!("socket,id=orders,path={},server=on,wait=off", path(orders)?)]);
    arg(&["-serial", "chardev:orders"]);
    arg(&["-qmp", &format!("unix:{},server=on,wait=off", path(control)?)]);
    if build.skip_waits {
        arg(&["-icount", "shift=0,sleep=off"]);
    }
    arg(build.device.emulator_options());
    let lease_disks = build.images.leases.iter().enumerate();
    let mut disks: Vec<(usize, &PathBuf, bool)> = lease_disks.map(|(n, path)| (n, path, true)).collect();
    // /dev/vdb is the stamp disk, whatever the number of lease disks.
    disks.insert(1.min(disks.len()), (9, &build.images.stamps, false));
    for (number, image, cuttable) in disks {
        let image = path(image)?;
        let file = |name: &str| {
            format!("driver=file,node-name={name},filename={image},cache.direct=on,locking=off,aio=threads")
        };
        arg(&["-blockdev", &file(&format!("d{number}f"))]);
        if cuttable {
            arg(&["-blockdev", &file(&format!("d{number}f2"))]);
            let errors = json!({"driver": "blkdebug", "node-name": format!("d{number}err"),
                "image": format!("d{number}f2"), "inject-error": [
                    {"event": "none", "iotype": "read", "errno": 5},
                    {"event": "none", "iotype": "write", "errno": 5}]});
            arg(&["-blockdev", &errors.to_string()]);
        }
        let raw = format!("driver=raw,node-name=d{number}r,file=d{number}f,cache.direct=on");
        arg(&["-blockdev", &raw]);
        arg(&[
            "-device",
            &format!("virtio-blk-pci,drive=d{number}r,id=d{number},share-rw=on,serial=d{number}"),
        ]);
    }
    arg(&["-kernel", &path(&boot.kernel)?, "-initrd", &path(boot.initrd(build.kind, build.outfit)?)?]);
    let modules = format!("{},{}", build.outfit.modules(), build.device.modules());
    // An emulator that gets no time makes the kernel believe that its timer is broken: no check.
    let line = format!(
        "console=ttyS0 quiet panic=-1 no_timer_check guest.name=host{} guest.modules={modules}",
        build.number + 1
    );
    arg(&["-append", &line]);
    Ok(command)
}
