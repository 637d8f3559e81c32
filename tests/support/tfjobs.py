"""TFJobs in the shapes in which they are found, written small: those of Kubeflow's examples and guides, and others."""

from __future__ import annotations

from typing import Final

SHAPES: Final = {
    "servers and workers": """
apiVersion: "kubeflow.org/v1"
kind: "TFJob"
metadata: {name: "servers"}
spec:
  tfReplicaSpecs:
    PS:
      replicas: 2
      restartPolicy: Never
      template: &same
        spec:
          containers: [{name: tensorflow, image: "example/dist:1"}]
    Worker: {replicas: 4, restartPolicy: Never, template: *same}
""",
    "one worker with a claim": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: summaries, namespace: kubeflow}
spec:
  runPolicy: {cleanPodPolicy: None}
  tfReplicaSpecs:
    Worker:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: tensorflow
            image: example/summaries:1
            command: [python, /var/mnist.py, --log_dir=/train/logs]
            volumeMounts: [{mountPath: /train, name: training}]
          volumes:
          - {name: training, persistentVolumeClaim: {claimName: events}}
""",
    "an estimator with a chief and an evaluator": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: estimator}
spec:
  tfReplicaSpecs:
    Chief: &role
      replicas: 1
      restartPolicy: ExitCode
      template:
        metadata: {annotations: {scheduling.k8s.io/group-name: estimator}}
        spec: {containers: [{name: tensorflow, image: "example/estimator:1"}]}
    Worker: {<<: *role, replicas: 3}
    Evaluator: *role
""",
    "one worker with several GPUs": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mirrored}
spec:
  tfReplicaSpecs:
    Worker:
      restartPolicy: OnFailure
      template:
        spec: {containers: [{name: tensorflow, image: "example/gpu:1", resources: {limits: {nvidia.com/gpu: "4"}}}]}
""",
    "workers alone": """
apiVersion: "kubeflow.org/v1"
kind: TFJob
metadata: {name: simple, namespace: kubeflow}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - {name: tensorflow, image: "example/simple:1", command: [python, /opt/mnist.py, --epochs=1]}
""",
    "a chief alone, its restart policy in the template": """
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata: {name: training-name}
spec:
  tfReplicaSpecs:
    Chief:
      replicas: 1
      template:
        spec:
          containers:
          - name: tensorflow
            image: example/model:1
            command: [/usr/bin/python, /opt/model.py]
            env: [{name: batchSize, value: "32"}]
            workingDir: /opt
          restartPolicy: OnFailure
""",
    "a master, and the run policy beside the roles": """
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata: {generateName: tfjob-}
spec:
  cleanPodPolicy: All
  ttlSecondsAfterFinished: 600
  activeDeadlineSeconds: 7200
  backoffLimit: 5
  tfReplicaSpecs:
    MASTER: &role
      replicas: 1
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: tensorflow, image: "example/master:1"}]}}
    PS: *role
    Worker: {<<: *role, replicas: 3}
""",
    "a gang in a queue of Volcano": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: gang}
spec:
  successPolicy: AllWorkers
  runPolicy:
    backoffLimit: 2
    schedulingPolicy:
      minAvailable: 3
      queue: research
      priorityClass: high
      scheduleTimeoutSeconds: 60
      minResources: {cpu: "6"}
  tfReplicaSpecs:
    Worker:
      replicas: 3
      restartPolicy: Always
      template: {spec: {containers: [{name: tensorflow, image: "example/gang:1"}]}}
""",
    "a job of Kueue as a cluster shows it": """
apiVersion: v1
kind: List
items:
- apiVersion: kubeflow.org/v1
  kind: TFJob
  metadata:
    name: queued
    namespace: team
    uid: 5c0a
    resourceVersion: "12"
    creationTimestamp: "2024-01-02T03:04:05Z"
    generation: 2
    labels: {kueue.x-k8s.io/queue-name: team-queue, team: vision}
    annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
  spec:
    runPolicy: {suspend: true, managedBy: kubeflow.org/training-operator}
    tfReplicaSpecs:
      Worker:
        replicas: 2
        restartPolicy: OnFailure
        template:
          metadata: {creationTimestamp: null}
          spec: {containers: [{name: tensorflow, image: "example/queued:1", resources: {}}]}
  status: {conditions: []}
""",
    "dynamic workers beside a sidecar": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dynamic}
spec:
  enableDynamicWorker: true
  tfReplicaSpecs:
    ps: &role
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata: {annotations: {sidecar.istio.io/inject: "false"}}
        spec:
          initContainers:
          - {name: fetch, image: "example/fetch:1", env: [{name: DTJ_X, value: "1"}, {name: A, value: b}]}
          containers:
          - {name: logger, image: "example/logger:1"}
          - name: tensorflow
            image: example/dynamic:1
            ports: [{name: tfjob-port, containerPort: 3333}, {name: board, containerPort: 6006}]
            env:
            - {name: TF_CONFIG, value: "{}"}
            - name: CPUS
              valueFrom: {resourceFieldRef: {containerName: tensorflow, resource: limits.cpu}}
    worker: {<<: *role, replicas: 3}
""",
    "servers that differ from the workers by a little": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: uneven}
spec:
  tfReplicaSpecs:
    Chief:
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: tensorflow, image: "example/u:1", args: [--chief]}]}}
    PS:
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: tensorflow, image: "example/u:1"}]}}
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - {name: tensorflow, image: "example/u:1", args: [--worker], resources: {limits: {nvidia.com/gpu: 1}}}
""",
    "an old TPU": """
apiVersion: kubeflow.org/v1beta1
kind: TFJob
metadata: {name: old-tpu}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - {name: tensorflow, image: "example/tpu:1", resources: {limits: {cloud-tpus.google.com/v2: 8}}}
""",
}
