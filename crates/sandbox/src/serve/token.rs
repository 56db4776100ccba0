//! Service-account tokens: JSON Web Tokens signed with ES256, as a cluster mints them.
//!
//! Pure apart from the signature's own randomness: who may have a token, and whether its account still exists, is `auth`'s question.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

/// Who issues the tokens, and the audience they are for unless another is asked: what a cluster's default is.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Longer ones are not ours; no need to decode them.
const TOKEN_LENGTH_LIMIT_BYTES: usize = 16 * 1024;
const HEADER: &str = r#"{"alg":"ES256","typ":"JWT"}"#;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

/// What a token is bound to, under the claim `kubernetes.io`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<Reference>,
    pub serviceaccount: Reference,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub aud: Vec<String>,
    pub exp: i64,
    pub iat: i64,
    pub iss: String,
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub binding: Binding,
    pub nbf: i64,
    pub sub: String,
}

/// Why a token is not accepted. Logged, never told to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is not a token of this server")]
    Malformed,
    #[error("its signature is wrong")]
    Signature,
    #[error("it was issued by somebody else")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("it has expired")]
    Expired,
}

/// The key that signs tokens, and checks them.
pub struct TokenKey {
    pair: KeyPair,
    signer: EcdsaKeyPair,
    random: SystemRandom,
}

impl TokenKey {
    pub(super) fn new(pair: KeyPair) -> Result<Self, rcgen::Error> {
        let random = SystemRandom::new();
        let signer = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            pair.serialized_der(),
            &random,
        )
        .map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        Ok(Self {
            pair,
            signer,
            random,
        })
    }

    pub(super) fn pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// `None` only if the system's random generator fails.
    pub fn sign(&self, claims: &Claims) -> Option<String> {
        let claims = serde_json::to_vec(claims).ok()?;
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(HEADER),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.signer.sign(&self.random, message.as_bytes()).ok()?;
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this key signed, for this API server, and that is valid now.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        if token.len() > TOKEN_LENGTH_LIMIT_BYTES {
            return Err(TokenError::Malformed);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(TokenError::Malformed)?;
        // Only the one header we write: a token that names another algorithm is refused before anything is computed.
        if header != URL_SAFE_NO_PAD.encode(HEADER) {
            return Err(TokenError::Malformed);
        }
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| TokenError::Malformed)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.der_bytes())
            .verify(message.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        let claims = URL_SAFE_NO_PAD
            .decode(claims)
            .map_err(|_| TokenError::Malformed)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?;
        check(&claims, now)?;
        Ok(claims)
    }
}

fn check(claims: &Claims, now: Timestamp) -> Result<(), TokenError> {
    if claims.iss != ISSUER {
        return Err(TokenError::Issuer);
    }
    if !claims.aud.iter().any(|audience| audience == ISSUER) {
        return Err(TokenError::Audience);
    }
    if now.as_second() < claims.nbf {
        return Err(TokenError::NotYetValid);
    }
    if now.as_second() >= claims.exp {
        return Err(TokenError::Expired);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: 2_000,
            iat: 1_000,
            iss: ISSUER.to_owned(),
            jti: "one".to_owned(),
            binding: Binding {
                namespace: "harbour".to_owned(),
                node: None,
                pod: Some(Reference {
                    name: "crane-1".to_owned(),
                    uid: "u-pod".to_owned(),
                }),
                secret: None,
                serviceaccount: Reference {
                    name: "crane".to_owned(),
                    uid: "u-account".to_owned(),
                },
            },
            nbf: 1_000,
            sub: "system:serviceaccount:harbour:crane".to_owned(),
        }
    }

    fn key() -> TokenKey {
        TokenKey::new(KeyPair::generate().unwrap()).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_says_what_it_was_signed_with() {
        let key = key();
        let token = key.sign(&claims()).unwrap();
        assert_eq!(key.verify(&token, at(1_500)), Ok(claims()));
    }

    #[test]
    fn a_token_is_refused_outside_its_time_and_audience() {
        let key = key();
        let token = key.sign(&claims()).unwrap();
        assert_eq!(key.verify(&token, at(2_000)), Err(TokenError::Expired));
        assert_eq!(key.verify(&token, at(999)), Err(TokenError::NotYetValid));
        let other = Claims {
            aud: vec!["vault".to_owned()],
            ..claims()
        };
        assert_eq!(
            key.verify(&key.sign(&other).unwrap(), at(1_500)),
            Err(TokenError::Audience)
        );
        let foreign = Claims {
            iss: "https://elsewhere".to_owned(),
            ..claims()
        };
        assert_eq!(
            key.verify(&key.sign(&foreign).unwrap(), at(1_500)),
            Err(TokenError::Issuer)
        );
    }

    #[test]
    fn a_forged_token_is_refused() {
        let (ours, theirs) = (key(), key());
        assert_eq!(
            ours.verify(&theirs.sign(&claims()).unwrap(), at(1_500)),
            Err(TokenError::Signature)
        );
        let token = ours.sign(&claims()).unwrap();
        let (message, _) = token.rsplit_once('.').unwrap();
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
        let body = message.split_once('.').unwrap().1;
        for forged in [
            format!("{message}."),
            format!("{unsigned}.{body}."),
            "a.b.c".to_owned(),
            String::new(),
        ] {
            assert!(ours.verify(&forged, at(1_500)).is_err(), "{forged}");
        }
        let mut changed = token.into_bytes();
        changed[60] ^= 1;
        assert!(
            ours.verify(&String::from_utf8(changed).unwrap(), at(1_500))
                .is_err()
        );
    }
}
