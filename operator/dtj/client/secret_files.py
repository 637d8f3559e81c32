"""Names of files that usually hold secrets, as lines of a ``.gitignore``.

They are not sent along with the code, unless its ``.dtjignore`` asks for it.

A ConfigMap, which more people may read than a Secret, is no place for them. A name is in this list if the program that
it belongs to keeps keys, tokens or passwords there, and if code rarely has a file of that name.
"""

from __future__ import annotations

from typing import Final

SECRET_FILES: Final = (
    # Variables of a program: https://12factor.net/config, direnv. An example of one is meant to be read.
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    "!example.env",
    "!sample.env",
    # Of no program: what everybody calls them.
    "secret.json",
    "secret.toml",
    "secret.y*ml",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
    ".secrets",
    ".vault-token",
    ".vault_pass*",
    # Keys: OpenSSH, OpenSSL, Java, PuTTY, GnuPG, KeePass, age.
    "*.pem",
    "*.key",
    "*.p8",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.ppk",
    "*.kdbx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    ".ssh/",
    ".gnupg/",
    ".password-store/",
    # Passwords of hosts, repositories, registries and indexes of packages.
    ".netrc",
    "_netrc",
    ".git-credentials",
    "**/.config/gh/",
    ".htpasswd",
    ".pypirc",
    "pip.conf",
    "**/.pip/",
    ".npmrc",
    "**/.cargo/credentials*",
    ".docker/",
    ".dockercfg",
    ".dockerconfigjson",
    # Clouds and object stores: AWS, Google, Azure, Oracle, boto, s3cmd, s3fs, MinIO, rclone.
    ".aws/",
    ".azure/",
    ".oci/",
    "**/.config/gcloud/",
    "application_default_credentials.json",
    "credentials.json",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "serviceaccount*.json",
    ".boto",
    ".s3cfg",
    ".passwd-s3fs",
    ".mc/",
    "rclone.conf",
    # Clusters and what sets them up.
    ".kube/",
    "kubeconfig",
    "kubeconfig.y*ml",
    "*.kubeconfig",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "*.tfvars.json",
    # Hubs and trackers of experiments: Hugging Face, Kaggle, Weights & Biases, Comet, Streamlit.
    ".huggingface/",
    "**/huggingface/token",
    "**/huggingface/stored_tokens",
    "kaggle.json",
    "**/.kaggle/access_token",
    "**/.config/wandb/",
    ".comet.config",
    "**/.streamlit/secrets.toml",
    # Databases: PostgreSQL, MySQL, Databricks, Snowflake.
    ".pgpass",
    ".my.cnf",
    ".databrickscfg",
    ".snowflake/",
    ".snowsql/",
    # What was typed.
    ".*_history",
)
