module headgate.testing/kueue-samples

go 1.26.0

require sigs.k8s.io/kueue v0.6.3
