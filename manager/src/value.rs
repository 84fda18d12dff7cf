//! Value blocks (lease-algorithms.md 7.4, socket-protocol.md 7.24, 7.25, rule R8): a sector of bytes that belongs to a resource.
//!
//! It is read when the lease is taken and kept in memory. An exclusive holder may set it; what was set is written before anything of
//! the lease is given up, with the first write of a release or of a conversion to shared.

use crate::action::{Action, Reply};
use crate::ids::{ConnId, ResourceId};
use crate::state::Resource;
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::ReleaseError;
use sanlock_lease::paxos::release::Released;
use sanlock_lease::paxos::take::ValueRead;
use std::sync::Arc;

/// Writes of a value block that were refused, after which the lease is given up without it, so that a disk that refuses this one
/// sector, or the first one of several that cannot be opened, keeps nobody out for ever.
pub(crate) const WRITES_MAX: u32 = 4;

/// Errors that are of this host and say nothing of the disk: EAGAIN (no thread, or too many operations hang), ENOMEM, ENFILE, EMFILE.
const OF_THIS_HOST: [i32; 4] = [11, 12, 23, 24];

/// Whether a release failed because a write of the value block was refused. What was never begun, because storage hangs or this host has no
/// means, is no reason to give it up, however often; nor is what leaves a write in doubt: then mostly the whole disk is gone, the lease
/// cannot be given up either, and the value is still good when it comes back.
pub(crate) fn value_was_refused(result: &Result<Released, ReleaseError>) -> bool {
    let Err(ReleaseError::Value(failure)) = result else { return false };
    match failure {
        IoFailure::TimedOut => false,
        // Of one of several disks: with a single one there is no release.
        IoFailure::NotOpen(errno) => !OF_THIS_HOST.contains(errno),
        IoFailure::Os(errno) => !OF_THIS_HOST.contains(errno) && !failure.leaves_doubt(),
        IoFailure::Short => true,
    }
}

/// The value block of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// A sector, or why it could not be read.
    content: Result<Arc<[u8]>, ReturnCode>,
    /// It was set, and is not on disk yet.
    dirty: bool,
    /// Writes that were refused.
    failures: u32,
}

impl Value {
    pub(crate) fn new(read: ValueRead) -> Self {
        Self { content: read.map_err(|e| ReturnCode::from(&e)), dirty: false, failures: 0 }
    }

    /// What is to be written before the lease is given up.
    pub(crate) fn unwritten(&self) -> Option<Arc<[u8]>> {
        self.content.as_ref().ok().filter(|_| self.dirty).cloned()
    }

    fn set(&mut self, bytes: &[u8], sector: usize) -> Result<(), ReturnCode> {
        if bytes.is_empty() {
            return Err(ReturnCode::EINVAL);
        }
        if bytes.len() > sector {
            return Err(ReturnCode::E2BIG);
        }
        let mut content = match &self.content {
            Ok(content) => content.to_vec(),
            // Without the rest only a whole block is known.
            Err(code) if bytes.len() < sector => return Err(*code),
            Err(_) => vec![0; sector],
        };
        for (to, from) in content.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.content = Ok(Arc::from(content));
        self.dirty = true;
        self.failures = 0;
        Ok(())
    }
}

impl Resource {
    /// What its value block is to be before the lease is given up.
    pub(crate) fn unwritten_value(&self) -> Option<Arc<[u8]>> {
        self.value.as_ref().and_then(Value::unwritten)
    }

    fn is_held_as(&self, names: (Name, Name)) -> bool {
        self.spec.names() == names && self.is_granted()
    }

    fn set_value(&mut self, bytes: &[u8]) -> Result<(), ReturnCode> {
        let value = self.value.as_mut().ok_or(ReturnCode::EINVAL)?;
        if self.converting.is_some() {
            // Being written, or about to be shared: it would reach nobody.
            return Err(ReturnCode::EAGAIN);
        }
        if self.spec.shared {
            // A shared holder's value is never written.
            return Err(ReturnCode::EINVAL);
        }
        value.set(bytes, self.geometry.sector().slice_len())
    }
}

impl Manager {
    pub(crate) fn set_lvb(&mut self, conn: ConnId, names: (Name, Name), bytes: &[u8], out: &mut Vec<Action>) {
        let resource = self.resources.values_mut().find(|r| r.is_held_as(names)).ok_or(ReturnCode::ENOENT);
        let result = resource.and_then(|r| r.set_value(bytes));
        reply(out, conn, result.err().map_or(0, |code| code.0));
    }

    pub(crate) fn get_lvb(&self, conn: ConnId, names: (Name, Name), length: u32, out: &mut Vec<Action>) {
        let resource = self.resources.values().find(|r| r.is_held_as(names)).ok_or(ReturnCode::ENOENT);
        let found = resource.and_then(|resource| {
            let content = resource.value.as_ref().ok_or(ReturnCode::EINVAL)?.content.clone()?;
            Ok(match usize::try_from(length) {
                Ok(length) if length > 0 => content.get(..length).map_or(content.clone(), Arc::from),
                _ => content,
            })
        });
        match found {
            Ok(bytes) => out.push(Action::Reply { conn, reply: Reply::Value(bytes) }),
            Err(code) => reply(out, conn, code.0),
        }
    }

    /// A write of the value block succeeded, or was refused a release.
    pub(crate) fn value_written(&mut self, id: ResourceId, failed: bool, out: &mut Vec<Action>) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let Some(value) = resource.value.as_mut().filter(|v| v.dirty) else { return };
        if !failed {
            value.dirty = false;
            return;
        }
        value.failures += 1;
        if value.failures >= WRITES_MAX {
            value.dirty = false;
            let text = format!(
                "the value block of {}:{} is LOST: {WRITES_MAX} writes of it were refused, the lease is given up without it",
                resource.spec.lockspace, resource.spec.name
            );
            log(out, Level::Durable, Some(resource.ls), text);
        }
    }
}
