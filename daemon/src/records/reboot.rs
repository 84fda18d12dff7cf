//! Records that outlive a reboot: which generation of a host id this machine joined with, and in which boot.
//!
//! The run directory is empty after a reboot, and a host that was reset would wait as long for its own old lease as for a
//! stranger's. A record of another boot *of this machine* proves that nothing of that instance is left. The machine is named by
//! its hardware's UUID, so that a cloned system disk does not speak for the machine it was copied from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sanlock_lease::delta::Instance;
use sanlock_lease::name::Name;
use sanlock_lease::text::LockspaceSpec;
use sanlock_manager::rejoin::{RejoinEvidence, RejoinRecord};

use super::form::{seal, unseal};
use super::{END, hex, instance, place, read, replace, unlink};

/// Where the records are, if the run directory is the usual one.
pub(crate) const STATE_DIR: &str = "/var/lib/sanlock";
/// First line of a record.
const HEADING: &str = "sanlock reboot record 3";
/// That of the form before, without a checksum: of what it says, only the instance counts.
const HEADING_UNSEALED: &str = "sanlock reboot record 2";
/// Bytes of a record: more than its longest form.
const RECORD_BYTES_MAX: u64 = 4096;
/// Where Linux names the machine; the first can be read by root only.
const MACHINE: [&str; 2] = ["/sys/class/dmi/id/product_uuid", "/etc/machine-id"];

/// The records of this machine.
#[derive(Debug)]
pub(crate) struct Reboots {
    directory: PathBuf,
    machine: String,
    boot: String,
}

/// The machine's name, in one word. Ask before root is dropped.
pub(crate) fn machine() -> Option<String> {
    MACHINE.iter().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        let word = text.trim();
        (!word.is_empty() && word.len() <= 128 && !word.contains(char::is_whitespace))
            .then(|| word.to_owned())
    })
}

impl Reboots {
    /// The records in this directory, of this machine in this boot.
    pub(crate) fn new(directory: &Path, machine: String, boot: String) -> Self {
        Self { directory: directory.to_owned(), machine, boot }
    }

    fn path(&self, lockspace: &Name, host_id: u64) -> PathBuf {
        self.directory.join(format!("joined-{}-{host_id}", hex(lockspace.as_bytes())))
    }

    /// The lines of a record of an instance; `place` is left out in the form before.
    fn lines(
        &self,
        heading: &str,
        boot: &str,
        spec: &LockspaceSpec,
        place: &str,
        instance: Instance,
    ) -> String {
        let (machine, lockspace, host_id) = (&self.machine, hex(spec.name.as_bytes()), spec.host_id);
        let (generation, io_timeout) = (instance.generation, instance.io_timeout.secs());
        format!(
            "{heading}\nmachine {machine}\nboot {boot}\nlockspace {lockspace}\nhost_id {host_id}\n{place}generation {generation}\n\
             io_timeout {io_timeout}\n"
        )
    }

    /// Notes a join. Nothing is written if that is noted already.
    ///
    /// # Errors
    /// A file operation failed; an earlier record, if any, is still there and speaks of another generation.
    pub(crate) fn note(&self, record: &RejoinRecord) -> io::Result<()> {
        let RejoinRecord { spec, instance, .. } = record;
        let path = self.path(&spec.name, spec.host_id);
        let text = seal(self.lines(HEADING, &self.boot, spec, &place(&spec.path, spec.offset), *instance));
        if read(&path, RECORD_BYTES_MAX).is_ok_and(|found| found == text) {
            return Ok(());
        }
        replace(&self.directory, &path, &text)
    }

    /// What is known of an instance of this machine in an earlier boot, if it was not left in good order since.
    pub(crate) fn earlier_boot(&self, spec: &LockspaceSpec) -> Option<RejoinEvidence> {
        let text = read(&self.path(&spec.name, spec.host_id), RECORD_BYTES_MAX).ok()?;
        let sealed = unseal(&text);
        let lines = sealed.or_else(|| text.strip_suffix(END))?;
        let line = |key: &str| lines.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let (boot, instance) = (line("boot")?, instance(line("generation")?, line("io_timeout")?)?);
        let (heading, recorded) = match sealed {
            Some(_) => (HEADING, format!("path {}\noffset {}\n", line("path")?, line("offset")?)),
            None => (HEADING_UNSEALED, String::new()),
        };
        // Every other line has to be exactly as this machine would have written it.
        if boot == self.boot || lines != self.lines(heading, boot, spec, &recorded, instance) {
            return None;
        }
        Some(if recorded == place(&spec.path, spec.offset) {
            RejoinEvidence::OtherBoot { instance }
        } else {
            RejoinEvidence::NoProof { instance }
        })
    }

    /// Removes a record. One that is not there is no error.
    ///
    /// # Errors
    /// It is still there.
    pub(crate) fn remove(&self, lockspace: &Name, host_id: u64) -> io::Result<()> {
        unlink(&self.path(lockspace, host_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::timing::IoTimeout;

    fn spec() -> LockspaceSpec {
        LockspaceSpec { name: name("LS"), host_id: 7, path: b"/dev/a b".to_vec(), offset: 1 << 20 }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn of(generation: u64) -> Instance {
        Instance { generation, io_timeout: IoTimeout::new(20).unwrap() }
    }

    fn proved(generation: u64) -> Option<RejoinEvidence> {
        Some(RejoinEvidence::OtherBoot { instance: of(generation) })
    }

    fn record(generation: u64) -> RejoinRecord {
        RejoinRecord { spec: spec(), instance: of(generation), pids: vec![1], outlived: true }
    }

    #[test]
    fn only_another_boot_of_the_same_machine_speaks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |machine: &str, boot: &str| Reboots::new(dir.path(), machine.to_owned(), boot.to_owned());
        let before = at("m1", "b1");
        assert_eq!(before.earlier_boot(&spec()), None);
        before.note(&record(3)).unwrap();
        before.note(&record(3)).unwrap();
        assert_eq!(before.earlier_boot(&spec()), None, "it was in this boot");
        assert_eq!(at("m1", "b2").earlier_boot(&spec()), proved(3));
        assert_eq!(at("m2", "b2").earlier_boot(&spec()), None, "a copied disk");
        assert_eq!(at("m1", "b2").earlier_boot(&LockspaceSpec { host_id: 8, ..spec() }), None);
        assert_eq!(at("m1", "b2").earlier_boot(&LockspaceSpec { name: name("other"), ..spec() }), None);
        for elsewhere in [
            LockspaceSpec { path: b"/dev/a".to_vec(), ..spec() },
            LockspaceSpec { path: b"/dev/./a b".to_vec(), ..spec() },
            LockspaceSpec { offset: 0, ..spec() },
        ] {
            let told = Some(RejoinEvidence::NoProof { instance: of(3) });
            assert_eq!(at("m1", "b2").earlier_boot(&elsewhere), told, "{elsewhere:?}");
        }
        at("m1", "b2").note(&record(4)).unwrap();
        assert_eq!(at("m1", "b3").earlier_boot(&spec()), proved(4));
        at("m1", "b3").remove(&name("LS"), 7).unwrap();
        at("m1", "b3").remove(&name("LS"), 7).unwrap();
        assert_eq!(at("m1", "b3").earlier_boot(&spec()), None);
    }

    #[test]
    fn a_damaged_record_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let before = Reboots::new(dir.path(), "m".to_owned(), "b1".to_owned());
        let after = Reboots::new(dir.path(), "m".to_owned(), "b2".to_owned());
        before.note(&record(3)).unwrap();
        let path = before.path(&name("LS"), 7);
        let whole = fs::read(&path).unwrap();
        assert_eq!(after.earlier_boot(&spec()), proved(3));
        // In another boot, and in the one that it is of: a boot that never was is no reboot.
        let says_nothing = |bytes: &[u8], how: &dyn std::fmt::Display| {
            fs::write(&path, bytes).unwrap();
            for reader in [&before, &after] {
                assert_eq!(reader.earlier_boot(&spec()), None, "{how}");
            }
        };
        for cut in 0..whole.len() {
            says_nothing(&whole[..cut], &format_args!("cut at {cut}"));
        }
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            says_nothing(&damaged, &format_args!("bit {bit} of byte {at}"));
        }
        says_nothing(&[0xff; 9000], &"something else");
    }

    #[test]
    fn a_record_of_the_form_without_checksum_tells_of_an_instance_and_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let after = Reboots::new(dir.path(), "m".to_owned(), "b2".to_owned());
        let told = Some(RejoinEvidence::NoProof { instance: of(3) });
        for (boot, end, found) in
            [("b1", "end\n", told), ("b2", "end\n", None), ("b1", "end", None), ("b1", "", None)]
        {
            let old = format!(
                "sanlock reboot record 2\nmachine m\nboot {boot}\nlockspace 4c53\nhost_id 7\ngeneration 3\nio_timeout 20\n{end}"
            );
            fs::write(after.path(&name("LS"), 7), old).unwrap();
            assert_eq!(after.earlier_boot(&spec()), found, "{boot} {end:?}");
        }
    }
}
