//! Plays a scenario of two hosts that share a volume group: stock lvm2 with lvmlockd, which keeps its locks in the lock
//! manager under test.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::guest::{Build, Cut, Guest};
use crate::image::Boot;
use crate::play::start_daemons;
use crate::scenario::{Device, LvmScenario, Outfit, Timing};
use crate::timeline::{GuestNo, Timeline, What};
use crate::watch::Images;

/// The shared disk: the volume group's locks and a few small volumes.
const DISK_BYTES: u64 = 320 << 20;

/// Longest wait for an order: lvmlockd tries again by itself for a while, and the machine may be busy.
const ORDER_LIMIT: Duration = Duration::from_secs(120);

/// More patience than the timeouts ask for.
const PATIENCE: Duration = Duration::from_secs(90);

/// No udev in the guests; a small volume for the locks, so that it is made quickly.
const LVM_CONF: &str = "\
global { use_lvmlockd=1 sanlock_lv_extend=16 }
devices { obtain_device_list_from_udev=0 external_device_info_source=none use_devicesfile=0 }
activation { udev_sync=0 udev_rules=0 monitoring=0 }
backup { backup=0 archive=0 }
";

/// Makes the shared images, sparse.
///
/// # Errors
/// No space.
pub(crate) fn make_images(dir: &Path) -> Result<Images, String> {
    let image = |name: &str, bytes: u64| {
        let path = dir.join(name);
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|error| format!("{}: {error}", path.display())).map(|()| path)
    };
    Ok(Images { leases: vec![image("volumes.img", DISK_BYTES)?], stamps: image("stamps.img", 1 << 20)? })
}

/// The order that starts lvmlockd and waits until it listens. Sets LVMLOCKD.
fn start_lvmlockd(timing: Timing) -> String {
    format!(
        "rm -f /run/lvm/lvmlockd.socket; begin lvmlockd lvmlockd -D -g sanlock -A 1 -o {}; LVMLOCKD=$PID; n=0; \
         until [ -S /run/lvm/lvmlockd.socket ] || [ $n = 150 ]; do n=$((n+1)); usleep 200000; done; \
         [ -S /run/lvm/lvmlockd.socket ]",
        timing.io
    )
}

/// Two hosts with a volume group between them.
struct Hosts([Guest; 2]);

impl Hosts {
    /// An lvm2 command on host `number` (1 or 2) that must succeed; returns what it says.
    fn does(&mut self, number: usize, command: &str) -> Result<String, String> {
        self.0[number - 1].must(&format!("lvm {command} 2>&1"), ORDER_LIMIT)
    }

    /// Starts the locks of the volume group. The volume that they lie on has a link that udev makes as soon as the volume
    /// appears; without udev lvm2 makes it when the command ends, too late for lvmlockd.
    fn starts_locking(&mut self, number: usize) -> Result<(), String> {
        let order = "ln -sf ../dm-0 /dev/mapper/vg-lvmlock; lvm vgchange --lock-start vg 2>&1";
        self.0[number - 1].must(order, ORDER_LIMIT).map(drop)
    }

    /// One that must be refused, saying `reason`.
    fn is_refused(&mut self, number: usize, command: &str, reason: &str) -> Result<(), String> {
        let (status, said) = self.0[number - 1].order(&format!("lvm {command} 2>&1"), ORDER_LIMIT)?;
        match status {
            0 => Err(format!("host {number}: {command} was not refused: {said}")),
            _ if said.contains(reason) => Ok(()),
            _ => Err(format!("host {number}: {command}: refused, but not with {reason:?}: {said}")),
        }
    }
}

/// Plays `scenario`.
///
/// # Errors
/// Something did not happen that had to, or the other way round.
pub(crate) fn play(
    scenario: &LvmScenario,
    boot: &Boot,
    images: &Images,
    sockets: &Path,
    timeline: &Arc<Timeline>,
) -> Result<(), String> {
    let start = |number: GuestNo| -> Result<Guest, String> {
        let kind = scenario.hosts[number];
        let build =
            Build { number, kind, outfit: Outfit::Lvm, device: Device::I6300esb, images, skip_waits: false };
        let mut guest = Guest::start(boot, &build, sockets, Arc::clone(timeline))?;
        let conf = LVM_CONF.replace('\n', "\\n");
        let host_id = number + 1;
        guest.must(
            &format!(
                "mkdir -p /etc/lvm /run/lvm /run/lock/lvm /var/lib/lvm; printf '{conf}' >/etc/lvm/lvm.conf; \
                 printf 'local {{ host_id={host_id} }}\\n' >/etc/lvm/lvmlocal.conf"
            ),
            ORDER_LIMIT,
        )?;
        guest.must(&start_daemons(number, scenario.timing), ORDER_LIMIT)?;
        guest.must(&start_lvmlockd(scenario.timing), ORDER_LIMIT)?;
        Ok(guest)
    };
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| start(1));
        (start(0), other.join())
    });
    let second = second.map_err(|_| "starting the second guest panicked".to_owned())??;
    let mut hosts = Hosts([first?, second]);

    create_and_share(&mut hosts)?;
    hand_over(&mut hosts)?;
    stop_and_start(&mut hosts)?;
    lose_lvmlockd(&mut hosts, scenario.timing)?;
    lose_a_host(hosts, scenario.timing, timeline)
}

const LOCKED: &str = "LV locked by other host: vg/one";

fn create_and_share(hosts: &mut Hosts) -> Result<(), String> {
    hosts.does(1, "vgcreate --shared vg /dev/vda")?;
    hosts.does(1, "lvcreate -n one -L 8m vg")?;
    hosts.is_refused(2, "lvchange -aey vg/one", "failed lock")?;
    hosts.starts_locking(2)?;
    hosts.is_refused(2, "lvchange -aey vg/one", LOCKED)?;
    hosts.is_refused(2, "lvremove -y vg/one", LOCKED)?;
    // What one host changes the other one sees, and changes further.
    hosts.does(2, "lvcreate -n two -L 8m vg")?;
    hosts.does(1, "lvextend -L +4m vg/one")?;
    let volumes = hosts.does(2, "lvs --noheadings --units m -o lv_name,lv_size vg")?;
    let words: Vec<&str> = volumes.split_whitespace().collect();
    if !words.windows(4).any(|words| words == ["one", "12.00m", "two", "8.00m"]) {
        return Err(format!("host 2 does not see what host 1 made: {volumes}"));
    }
    Ok(())
}

/// A volume goes from one host to the other, then both share it.
fn hand_over(hosts: &mut Hosts) -> Result<(), String> {
    hosts.does(1, "lvchange -an vg/one")?;
    hosts.does(2, "lvchange -aey vg/one")?;
    hosts.is_refused(1, "lvchange -aey vg/one", LOCKED)?;
    hosts.does(2, "lvchange -an vg/one")?;
    hosts.does(1, "lvchange -asy vg/one")?;
    hosts.does(2, "lvchange -asy vg/one")?;
    hosts.is_refused(1, "lvchange -aey vg/one", LOCKED)?;
    hosts.does(2, "lvchange -an vg/one")?;
    // Alone again: the shared lock becomes an exclusive one.
    hosts.does(1, "lvchange -aey vg/one")?;
    hosts.is_refused(2, "lvchange -asy vg/one", LOCKED)
}

fn stop_and_start(hosts: &mut Hosts) -> Result<(), String> {
    hosts.is_refused(1, "vgchange --lock-stop vg", "must first be deactivated")?;
    hosts.does(1, "lvchange -an vg/one")?;
    hosts.does(1, "vgchange --lock-stop vg")?;
    let status = hosts.0[0].must("sanlock client status", ORDER_LIMIT)?;
    if status.contains("lvm_vg") {
        return Err(format!("host 1 has not left: {status}"));
    }
    hosts.is_refused(1, "lvchange -aey vg/one", "failed lock")?;
    hosts.does(2, "lvchange -aey vg/one")?;
    hosts.starts_locking(1)?;
    hosts.is_refused(1, "lvchange -aey vg/one", LOCKED)
}

/// lvmlockd dies while a volume is in use: its locks stay until a new one adopts them.
fn lose_lvmlockd(hosts: &mut Hosts, timing: Timing) -> Result<(), String> {
    let second = &mut hosts.0[1];
    second.must("kill -9 $LVMLOCKD", ORDER_LIMIT)?;
    let orphan = "n=0; until sanlock client status | grep -q '^r .*ORPHAN'; do n=$((n+1)); [ $n -lt 150 ] || break; \
                  usleep 200000; done; sanlock client status | grep -q '^r .*ORPHAN'";
    second.must(orphan, ORDER_LIMIT)?;
    hosts.is_refused(1, "lvchange -aey vg/one", LOCKED)?;
    hosts.0[1].must(&start_lvmlockd(timing), ORDER_LIMIT)?;
    hosts.is_refused(1, "lvchange -aey vg/one", LOCKED)?;
    hosts.does(2, "lvchange -an vg/one")?;
    hosts.does(1, "lvchange -aey vg/one")?;
    hosts.does(1, "lvchange -an vg/one")?;
    hosts.does(2, "lvchange -aey vg/one").map(drop)
}

/// The host with the volume loses the disk: the lock manager asks lvmlockd to let go, which it cannot while the volume is in
/// use, and so the host is reset. Then, and not before, the other one gets the volume.
fn lose_a_host(hosts: Hosts, timing: Timing, timeline: &Timeline) -> Result<(), String> {
    let Hosts([mut first, mut second]) = hosts;
    let cut = timeline.mark();
    second.cut(0, Cut::Errors)?;
    let off = Instant::now();
    let limit = Duration::from_secs(timing.dead()) + PATIENCE;
    let (status, said) = first.order("lvm lvchange -aey vg/one 2>&1", ORDER_LIMIT)?;
    if status == 0 {
        return Err(format!("host 1 has the volume although host 2 still runs: {said}"));
    }
    timeline.expect(cut, limit, "request to give the volume group up", |what| match what {
        What::Line(1, text) if text.starts_with("lvmlockd:") && text.contains("kill") => Some(()),
        _ => None,
    })?;
    let reset = |within: Duration| {
        timeline.expect(cut, within, "reset of host 2", |what| match what {
            What::Qmp(1, name, _) if name == "WATCHDOG" => Some(()),
            _ => None,
        })
    };
    loop {
        let (status, said) = first.order("lvm lvchange -aey vg/one 2>&1", ORDER_LIMIT)?;
        match status {
            // Before it was granted, that is; who tells of it may be a moment late.
            0 => {
                let granted = timeline.now();
                match reset(Duration::from_secs(5)) {
                    Ok((at, ())) if at < granted => break,
                    _ => return Err("DOUBLE OWNER: host 1 has the volume before host 2 was reset".to_owned()),
                }
            }
            _ if !said.contains("vg/one") => return Err(format!("host 1: {said}")),
            _ if off.elapsed() > limit => {
                return Err(format!("host 1 does not get the volume after {:?}: {said}", off.elapsed()));
            }
            _ => thread::sleep(Duration::from_secs(1)),
        }
    }
    first.must("lvm lvremove -y vg/one vg/two 2>&1", ORDER_LIMIT)?;
    first.must("lvm vgremove vg 2>&1", ORDER_LIMIT).map(drop)
}
