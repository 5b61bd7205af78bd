{{/* Objects come from manifests/. These functions read them, and change what depends on the release. */}}

{{/* All objects of a file: the root, and the path. */}}
{{- define "arranger.file" -}}
{{- $root := index . 0 -}}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1) | required (printf "no file %s" (index . 1))) }}
---
{{ include "arranger.object" (list $root (fromYaml $text)) }}
{{- end }}
{{- end -}}

{{/* One object as YAML, with the namespace of the release and the labels that all objects have. */}}
{{- define "arranger.object" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $metadata := $object.metadata -}}
{{- $labels := dict "app.kubernetes.io/part-of" "arranger" "app.kubernetes.io/managed-by" $root.Release.Service "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- $_ := set $metadata "labels" (merge $labels ($metadata.labels | default dict)) -}}
{{- if not (regexMatch "^(Cluster|Validating|Mutating|Queue$|FlowSchema$|PriorityLevelConfiguration$)" $object.kind) -}}
{{- $_ := set $metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $subject := $object.subjects -}}
{{- $_ := set $subject "namespace" $root.Release.Namespace -}}
{{- end -}}
{{ toYaml $object }}
{{- end -}}

{{/* The settings as environment variables: those of the file, and those of the values over them. */}}
{{- define "arranger.settings" -}}
{{- $given := deepCopy .Values.settings -}}
{{- if .Values.archive.url -}}
{{- $_ := set $given "archive_url" .Values.archive.url -}}
{{- end -}}
{{- if .Values.volumes -}}
{{- $_ := set $given "volumes" true -}}
{{- end -}}
{{- if .Values.devices -}}
{{- $_ := set $given "devices" true -}}
{{- end -}}
{{- $data := (fromYaml (.Files.Get "manifests/base/settings.yaml")).data -}}
{{- range $name, $value := $given -}}
{{- /* As JSON, because a large number would otherwise become 1e+06. */ -}}
{{- $_ := set $data (printf "ARRANGER_%s" (upper $name)) (kindIs "string" $value | ternary $value (toJson $value)) -}}
{{- end -}}
{{ toYaml $data }}
{{- end -}}

{{- define "arranger.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Where a Deployment finds the URL of Redis. */}}
{{- define "arranger.redisKey" -}}
{{- $name := index . 1 -}}
{{- with (index . 0).Values.redis -}}
{{- if and .users (or .url .bundled.enabled) -}}
{{- fail "redis.users needs a Secret of your own: leave redis.url and redis.bundled alone" -}}
{{- end -}}
{{- if and .url .bundled.enabled -}}
{{- fail "redis.url and redis.bundled.enabled exclude each other" -}}
{{- end -}}
{{- /* The chart's own Secret has the name that the bundled Redis reads its password from. */ -}}
{{- $secret := .secret -}}
{{- if or .url .bundled.enabled -}}
{{- $secret = "arranger-redis" -}}
{{- end -}}
{{ toJson (dict "name" $secret "key" (.users | ternary $name "url")) }}
{{- end -}}
{{- end -}}

{{/* Gives a Deployment what the values have for all pods: the root, and the Deployment, which is changed. */}}
{{- define "arranger.forAllPods" -}}
{{- $values := (index . 0).Values -}}
{{- $template := (index . 1).spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "arranger.image" (index . 0)) -}}
{{- with $values.image.pullPolicy }}{{- $_ := set $container "imagePullPolicy" . }}{{- end -}}
{{- range $values.image.pullSecrets -}}
{{- $_ := set $pod "imagePullSecrets" (append ($pod.imagePullSecrets | default list) (dict "name" .)) -}}
{{- end -}}
{{- range $volume := $pod.volumes -}}
{{- if eq $volume.name "redis-tls" }}{{- $_ := set $volume.secret "secretName" $values.redis.tlsSecret }}{{- end -}}
{{- end -}}
{{- with $values.nodeSelector }}{{- $_ := set $pod "nodeSelector" . }}{{- end -}}
{{- with $values.tolerations }}{{- $_ := set $pod "tolerations" . }}{{- end -}}
{{- with $values.priorityClassName }}{{- $_ := set $pod "priorityClassName" . }}{{- end -}}
{{- /* Another setting is another template, so that the processes start again. */ -}}
{{- $checksum := dict "checksum/settings" (include "arranger.settings" (index . 0) | sha256sum) -}}
{{- $_ := set $template.metadata "annotations" (merge $checksum $values.podAnnotations) -}}
{{- end -}}
