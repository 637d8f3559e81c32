{{/* Base of all names. */}}
{{- define "dtj.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Names of objects that have no namespace: two releases in different namespaces must not share them. */}}
{{- define "dtj.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "dtj.fullname" .) -}}
{{- end -}}

{{- define "dtj.serviceAccountName" -}}
{{- default (ternary (include "dtj.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* What finds the operator's pods; must never change, since a Deployment's selector cannot. */}}
{{- define "dtj.selector" -}}
app.kubernetes.io/name: dtj-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dtj.labels" -}}
{{ include "dtj.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: dtj
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "dtj.podAnnotations" -}}
kubectl.kubernetes.io/default-container: operator
{{- with .Values.acceleratorProfiles }}
# Profiles are read at the start: other profiles, other pods.
checksum/accelerator-profiles: {{ toYaml . | sha256sum }}
{{- end }}
{{- end -}}

{{/* Labels or annotations that a value adds to ours, of {field, ours, given}. A key of ours must not come twice. */}}
{{- define "dtj.added" -}}
{{- $ours := fromYaml .ours -}}
{{- range $key, $_ := .given -}}
{{- if hasKey $ours $key -}}
{{- fail (printf "%s sets %s, which the chart sets itself: remove it there" $.field $key) -}}
{{- end -}}
{{- end -}}
{{- toYaml .given -}}
{{- end -}}

{{/* A reference to an image of ours, of {image, version}. */}}
{{- define "dtj.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .version .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What the operator needs wherever it runs jobs: rules of a Role or of a ClusterRole. */}}
{{- define "dtj.rules" -}}
- apiGroups: [training.dtj.dev]
  resources: [distributedtrainingjobs]
  verbs: [list, watch, delete]
- apiGroups: [training.dtj.dev]
  resources: [distributedtrainingjobs/status]
  verbs: [patch]
{{- if .Values.rbac.blockOwnerDeletion }}
- apiGroups: [training.dtj.dev]
  resources: [distributedtrainingjobs/finalizers]
  verbs: [update]
{{- end }}
{{- if .Values.tfjob.enabled }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs]
  verbs: [list, watch, delete]
- apiGroups: [kubeflow.org]
  resources: [tfjobs/status]
  verbs: [patch]
{{- if .Values.rbac.blockOwnerDeletion }}
- apiGroups: [kubeflow.org]
  resources: [tfjobs/finalizers]
  verbs: [update]
{{- end }}
{{- end }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch, list]
{{- if .Values.networkPolicy.jobs.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if has "Kueue" .Values.gangSchedulers }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, delete, patch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
- apiGroups: [kueue.x-k8s.io]
  resources: [localqueues]
  verbs: [get]
{{- end }}
{{- if has "Volcano" .Values.gangSchedulers }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete]
{{- end }}
{{- if has "Coscheduling" .Values.gangSchedulers }}
- apiGroups: [scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete]
{{- end }}
{{- if has "Native" .Values.gangSchedulers }}
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete, patch]
{{- end }}
{{- end -}}

{{/* Peers that may connect to the pods of jobs, in addition to these pods themselves, as JSON for the operator. */}}
{{- define "dtj.jobAccess" -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $pods := dict "matchLabels" (include "dtj.selector" . | fromYaml) -}}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" $pods -}}
{{- $jobs := .Values.networkPolicy.jobs -}}
{{- dict "statusFrom" (prepend $jobs.statusFrom $operator) "tensorBoardFrom" $jobs.tensorBoardFrom | toJson -}}
{{- end -}}

{{/* The subject of the operator's bindings. */}}
{{- define "dtj.subjects" -}}
- kind: ServiceAccount
  name: {{ include "dtj.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* The namespace in which `helm test` makes its job. */}}
{{- define "dtj.testNamespace" -}}
{{- default .Release.Namespace (first .Values.namespaces) -}}
{{- end -}}

{{/* A CRD of {file, keep}, with the labels of the chart of root. */}}
{{- define "dtj.crd" -}}
{{- $crd := .root.Files.Get .file | fromYaml }}
{{- $metadata := $crd.metadata }}
{{- $_ := set $metadata "labels" (merge (include "dtj.labels" .root | fromYaml) (default dict $metadata.labels)) }}
{{- if .keep }}
{{- $_ := set $metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
{{- toYaml $crd }}
{{- end -}}

{{/* Fails where a training-operator of Kubeflow runs that still serves TFJobs: both would make the pods of a job. */}}
{{- define "dtj.noOtherOperatorOfTFJobs" -}}
{{- range $deployment := (lookup "apps/v1" "Deployment" "" "").items }}
{{- $label := dig "metadata" "labels" "control-plane" "" $deployment }}
{{- range $container := $deployment.spec.template.spec.containers }}
{{- if and (contains "training-operator" (printf "%s %s" $container.image $label)) (ne (int $deployment.spec.replicas) 0) }}
{{- $words := concat (default list $container.command) (default list $container.args) | join " " }}
{{- if or (not (contains "-enable-scheme" $words)) (regexMatch "(?i)-enable-scheme[= ]tfjob( |$)" $words) }}
{{- fail (printf "%s in namespace %s still serves TFJobs: start it with --enable-scheme for its other kinds" $deployment.metadata.name $deployment.metadata.namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
