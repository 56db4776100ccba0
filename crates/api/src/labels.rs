//! Labels and annotations: the words by which our objects are found again.

/// On everything we make; every watch of the operator is scoped by it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY_VALUE: &str = "geodb";
pub const APP_NAME: &str = "app.kubernetes.io/name";
pub const APP_NAME_VALUE: &str = "postgresql";

/// Name and UID of the Database an object belongs to. The UID decides: a Database of the same name made later owns nothing of an earlier one.
pub const DATABASE: &str = "geodb.imaginedata.com/database";
pub const DATABASE_UID: &str = "geodb.imaginedata.com/database-uid";
pub const INSTANCE: &str = "geodb.imaginedata.com/instance";

/// `primary` or `replica`, on pods, kept true from the register.
pub const ROLE: &str = "geodb.imaginedata.com/role";

/// On a claim: this instance is leaving. Written before anything of it is deleted and never taken back, so that a crash in between
/// cannot turn a removal into a repair.
pub const REMOVAL: &str = "geodb.imaginedata.com/removal";
pub const REMOVAL_REQUESTED: &str = "requested";

/// Hash of what we last meant by an object, so that a field dropped from our intent is noticed too.
pub const MEANT: &str = "geodb.imaginedata.com/meant";

/// On a Database: its deletion is ours to order.
pub const FINALIZER: &str = "geodb.imaginedata.com/ordered-deletion";

/// Selects everything the operator made.
pub fn managed_selector() -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE}")
}
