//! The steps that change what others see: the register and the read-write endpoint.
//!
//! Each reads the register afresh and goes on only if the fresh one leads to the same decision; the write is then over exactly what was read.

use anyhow::Context;
use geodb_ha::instance::{Action, Knowledge, Observed, Postgres, Volume, decide};
use geodb_ha::{Epoch, Lsn, Record, Register};
use k8s_openapi::api::coordination::v1::Lease;

use super::Supervisor;
use crate::endpoint;
use crate::register::{ApiError, Snapshot};

impl Supervisor {
    /// The record that is published now, with the identity of the object it is in.
    pub(super) fn published(&self) -> Option<(Record, Option<String>)> {
        let snapshot = self.snapshots.borrow();
        let Knowledge::Read { register, .. } = &snapshot.knowledge else {
            // Out of sight is not changed.
            return self.endpoint.clone();
        };
        let uid = snapshot
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.uid.clone());
        register
            .current_record()
            .map(|record| (record.clone(), uid))
    }

    /// Reads the register afresh, and returns it only if it still leads to the same step.
    async fn confirmed(
        &mut self,
        observed: &Observed,
        action: &Action,
    ) -> anyhow::Result<Option<Snapshot>> {
        let snapshot = self.register.read().await?;
        let fresh = Observed {
            register: snapshot.knowledge.clone(),
            ..observed.clone()
        };
        Ok((decide(&fresh) == *action).then_some(snapshot))
    }

    pub(super) async fn claim_epoch(
        &mut self,
        observed: &Observed,
        epoch: Epoch,
        action: &Action,
    ) -> anyhow::Result<()> {
        let Some(Snapshot {
            knowledge: Knowledge::Read { mut register, .. },
            lease: Some(lease),
        }) = self.confirmed(observed, action).await?
        else {
            return Ok(());
        };
        (register.epoch, register.winner) = (epoch, Some(self.memory.incarnation.clone()));
        self.write_register(&lease, &register).await
    }

    pub(super) async fn publish(
        &mut self,
        observed: &Observed,
        epoch: Epoch,
        action: &Action,
    ) -> anyhow::Result<()> {
        let Some(Snapshot {
            knowledge: Knowledge::Read { mut register, .. },
            lease: Some(lease),
        }) = self.confirmed(observed, action).await?
        else {
            return Ok(());
        };
        let (Postgres::Primary(primary), Volume::Data(data)) =
            (&observed.postgres, &observed.volume)
        else {
            anyhow::bail!("only a running primary can be published; this is a bug");
        };
        self.promote_in_memory(epoch)?;
        self.open_doors().await?;
        let here = self.environment.here();
        // What an earlier record of the same leadership says about voters and history stays true when only the address moved.
        let earlier = register
            .record
            .take()
            .filter(|record| record.leader == self.memory.incarnation);
        register.record = Some(Record {
            epoch,
            leader: self.memory.incarnation.clone(),
            voters: earlier
                .as_ref()
                .map(|record| record.voters.clone())
                .unwrap_or_default(),
            w: earlier.as_ref().map_or(0, |record| record.w),
            timeline: primary.timeline,
            switch_lsn: earlier.as_ref().map_or(Lsn(0), |record| record.switch_lsn),
            address: here.address,
            port: here.port,
            system_identifier: data.system_identifier.clone(),
            version: primary.version.clone(),
        });
        self.write_register(&lease, &register).await
    }

    /// Writes over exactly what was read. Having been too slow is no failure: the next look decides anew.
    async fn write_register(&self, base: &Lease, register: &Register) -> anyhow::Result<()> {
        match self.register.write(base, register).await {
            Err(ApiError::Conflict) => {
                tracing::info!("somebody else changed the register first");
                self.register.read().await?;
                Ok(())
            }
            written => written.context("failed to write the register"),
        }
    }

    pub(super) async fn publish_endpoint(&mut self) -> anyhow::Result<()> {
        let lease = self
            .snapshots
            .borrow()
            .lease
            .clone()
            .context("the register is gone")?;
        let published = self.published();
        let written = endpoint::publish(&self.client, &self.environment, &lease).await?;
        tracing::info!(written, "the read-write endpoint points here");
        self.endpoint = published;
        Ok(())
    }
}
