{{- define "fairlane.labels" -}}
app.kubernetes.io/name: fairlane
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "fairlane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The pod of one component: root, component, args, resources, and the probes of the API. */}}
{{- define "fairlane.pod" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
containers:
  - name: fairlane
    image: {{ include "fairlane.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: {{ toJson .args }}
    env:
      - {name: FAIRLANE_SERVER__LOG_FORMAT, value: json}
      - {name: FAIRLANE_SERVER__WAIT_FOR_STORES, value: "300"}
    envFrom: [{secretRef: {name: {{ .root.Values.secretName }}}}]
    volumeMounts: [{name: settings, mountPath: /var/lib/fairlane, readOnly: true}]
    resources: {{ toJson .resources }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- if eq .component "api" }}
    ports: [{name: http, containerPort: 8000}]
    # Liveness asks only this process: a database that is away must not restart the API.
    livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 3}
    readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 3, timeoutSeconds: 2}
    startupProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 2, failureThreshold: 150}
    {{- end }}
volumes: [{name: settings, configMap: {name: {{ .root.Release.Name }}-settings}}]
{{- end }}
