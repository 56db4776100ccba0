//! Volumes in every state a crash, a person or another instance can leave them in.

use super::*;

const IDENTIFIER: u64 = 7_000_000_000_000_000_001;

struct Fixture {
    directory: tempfile::TempDir,
    claim: Claim,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::lock(&paths(directory.path())).await.unwrap();
        Self { directory, claim }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn memory(&self) -> Memory {
        self.claim.recall("lake-1").unwrap().unwrap()
    }

    fn look(&self, memory: &mut Memory) -> Volume {
        self.claim.look(memory, "15").unwrap()
    }
}

fn paths(volume: &Path) -> Paths {
    Paths {
        volume: volume.to_owned(),
        data: volume.join("pgdata"),
        state: volume.join("state"),
        ..Paths::default()
    }
}

/// What counts as a data directory here: the two files that are examined.
fn make_data(directory: &Path, identifier: u64) {
    fs::create_dir_all(directory.join("global")).unwrap();
    fs::write(directory.join("PG_VERSION"), "15\n").unwrap();
    let mut control = identifier.to_ne_bytes().to_vec();
    control.resize(8192, 0);
    fs::write(directory.join("global/pg_control"), control).unwrap();
}

#[tokio::test]
async fn an_empty_volume_gets_an_identity_that_stays() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    assert_eq!(memory.incarnation.instance(), "lake-1");
    assert_eq!(fixture.memory(), memory);
    assert_eq!(fixture.look(&mut memory), Volume::Empty);
}

#[tokio::test]
async fn data_counts_only_after_the_rename_and_survives_a_crash_after_it() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    make_data(fixture.claim.staging(), IDENTIFIER);
    assert_eq!(fixture.look(&mut memory), Volume::HalfMade);
    fixture.claim.adopt_staging(&mut memory, None).unwrap();
    let data = Volume::Data(Data {
        system_identifier: IDENTIFIER.to_string(),
        kind: DataKind::Primary,
    });
    assert_eq!(fixture.look(&mut memory), data);

    // The crash: renamed, and not yet noted.
    let mut forgetful = Memory {
        system_identifier: None,
        ..memory.clone()
    };
    fixture.claim.remember(&forgetful).unwrap();
    assert_eq!(fixture.look(&mut forgetful), data);
    assert_eq!(fixture.memory(), memory);
}

#[tokio::test]
async fn a_standby_is_seen_as_one() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    make_data(fixture.claim.staging(), IDENTIFIER);
    fs::write(fixture.claim.staging().join("standby.signal"), "").unwrap();
    fixture
        .claim
        .adopt_staging(&mut memory, Some(&IDENTIFIER.to_string()))
        .unwrap();
    assert_eq!(
        fixture.look(&mut memory),
        Volume::Data(Data {
            system_identifier: IDENTIFIER.to_string(),
            kind: DataKind::Standby
        })
    );
}

#[tokio::test]
async fn data_of_another_database_is_not_adopted() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    make_data(fixture.claim.staging(), IDENTIFIER);
    let error = fixture
        .claim
        .adopt_staging(&mut memory, Some("1"))
        .unwrap_err();
    assert!(matches!(error, AdoptError::OtherDatabase { .. }), "{error}");
    assert_eq!(fixture.look(&mut memory), Volume::HalfMade);
    fixture.claim.discard_staging().await.unwrap();
    assert_eq!(fixture.look(&mut memory), Volume::Empty);
}

#[tokio::test]
async fn an_interrupted_making_is_not_adopted() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    fs::create_dir_all(fixture.claim.staging().join("base")).unwrap();
    let error = fixture.claim.adopt_staging(&mut memory, None).unwrap_err();
    assert!(matches!(error, AdoptError::Incomplete(_)), "{error}");
}

#[tokio::test]
async fn a_directory_with_anything_in_it_is_never_replaced() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    fs::create_dir(fixture.claim.data()).unwrap();
    fs::write(fixture.path("pgdata/precious"), "keep").unwrap();
    make_data(fixture.claim.staging(), IDENTIFIER);
    fixture.claim.adopt_staging(&mut memory, None).unwrap_err();
    assert_eq!(
        fs::read_to_string(fixture.path("pgdata/precious")).unwrap(),
        "keep"
    );
}

#[tokio::test]
async fn data_nobody_here_made_is_foreign() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    make_data(fixture.claim.data(), IDENTIFIER);
    assert_eq!(
        fixture.look(&mut memory),
        Volume::Foreign(Foreign::Unmarked)
    );
    fs::write(fixture.path("pgdata/geodb.incarnation"), "sea-3.abc").unwrap();
    assert_eq!(
        fixture.look(&mut memory),
        Volume::Foreign(Foreign::OtherInstance("sea-3.abc".into()))
    );
}

#[tokio::test]
async fn a_volume_with_data_and_no_memory_is_foreign_and_gets_none() {
    let fixture = Fixture::new().await;
    make_data(fixture.claim.data(), IDENTIFIER);
    assert_eq!(
        fixture.claim.recall("lake-1").unwrap(),
        Err(Foreign::Unmarked)
    );
    assert!(!fixture.path("state/instance.json").exists());
}

#[tokio::test]
async fn another_instances_or_damaged_memory_is_foreign_and_kept() {
    let fixture = Fixture::new().await;
    fixture.memory();
    assert!(matches!(
        fixture.claim.recall("lake-2").unwrap(),
        Err(Foreign::OtherInstance(_))
    ));
    for damaged in [
        "",
        "{",
        "{\"incarnation\":\"lake-1\"}",
        "{\"incarnation\":\"lake-1.a\",\"unknown\":1}",
    ] {
        fs::write(fixture.path("state/instance.json"), damaged).unwrap();
        assert!(
            matches!(
                fixture.claim.recall("lake-1").unwrap(),
                Err(Foreign::Memory(_))
            ),
            "{damaged}"
        );
        assert_eq!(
            fs::read_to_string(fixture.path("state/instance.json")).unwrap(),
            damaged
        );
    }
}

#[tokio::test]
async fn data_that_vanished_is_lost_and_damaged_data_is_refused() {
    let fixture = Fixture::new().await;
    let mut memory = fixture.memory();
    make_data(fixture.claim.staging(), IDENTIFIER);
    fixture.claim.adopt_staging(&mut memory, None).unwrap();
    let other = Volume::Foreign(Foreign::OtherVersion {
        data: "15".into(),
        programs: "16".into(),
    });
    assert_eq!(fixture.claim.look(&mut memory, "16").unwrap(), other);

    make_data(fixture.claim.data(), IDENTIFIER + 1);
    assert!(matches!(
        fixture.look(&mut memory),
        Volume::Foreign(Foreign::Incomplete(_))
    ));
    fs::write(fixture.path("pgdata/global/pg_control"), "").unwrap();
    assert!(matches!(
        fixture.look(&mut memory),
        Volume::Foreign(Foreign::Incomplete(_))
    ));

    fs::remove_dir_all(fixture.claim.data()).unwrap();
    assert_eq!(fixture.look(&mut memory), Volume::Lost);
    let mut renewed = fixture.claim.renew("lake-1").unwrap();
    assert_ne!(renewed.incarnation, memory.incarnation);
    assert_eq!(fixture.look(&mut renewed), Volume::Empty);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_an_earlier_container_uses_is_not_taken() {
    let fixture = Fixture::new().await;
    let inherited = fixture.claim.inherited_lock().unwrap();
    drop(fixture.claim);
    // The agent is gone, a process of its PostgreSQL is not.
    let taken = Claim::lock(&paths(fixture.directory.path())).await;
    assert!(matches!(taken, Err(VolumeError::InUse)));
    drop(inherited);
    Claim::lock(&paths(fixture.directory.path())).await.unwrap();
}
